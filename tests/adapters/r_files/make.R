# Writes the files of this folder: Rscript make.R (R 4.2 with the packages survival and randomForest).
set.seed(1)
n <- 60
patients <- data.frame(
  age = sample(18:90, n, TRUE), dose = round(rnorm(n, 5), 3),
  town = factor(sample(c("Bath", "Ely", "York"), n, TRUE)), smokes = runif(n) < 0.4
)
patients$pain <- round(0.1 * patients$age + patients$dose + rnorm(n), 3)
patients$visits <- rpois(n, exp(0.02 * patients$age))
patients$outcome <- factor(ifelse(patients$pain + rnorm(n) > 10, "ill", "well"), levels = c("well", "ill"))
patients$weeks <- round(rexp(n, exp(0.02 * (patients$age - 50))) * 10) + 1
patients$died <- rbinom(n, 1, 0.7)
write.csv(patients, "patients.csv", row.names = FALSE)

save_small <- function(object, name) saveRDS(object, name, compress = "xz")
bare <- function(model) { # what prints and predicts, and nothing else
  keep <- c("coefficients", "rank", "df.residual", "family", "xlevels", "contrasts", "call", "terms", "iter", "converged")
  structure(model[intersect(keep, names(model))], class = class(model))
}
strict <- glm.control(epsilon = 1e-14, maxit = 100)

values <- list(
  sequence = 1:10, texts = as.character(c(1.5, 2, 300)), missing = c(1L, NA, 3L), flags = c(TRUE, NA), 1i,
  bytes = as.raw(1:3), table = matrix(1:6, 2), text = c(a = "x", b = NA), sequence = NULL, name = quote(f(x, y = 2))
)
save_small(values, "values.rds")

linear <- lm(pain ~ age + dose + town + smokes, patients)
save_small(linear, "lm.rds")
save_small(bare(linear), "lm_bare.rds")
without_frame <- linear # its Q and R give the rows all the same
without_frame$model <- without_frame$residuals <- without_frame$fitted.values <- without_frame$effects <- NULL
save_small(without_frame, "lm_qr.rds")
within <- function(records) bare(lm(pain ~ age + dose, records))
save_small(within(patients), "lm_environment.rds")
hidden <- bare(linear)
attr(hidden, "drift") <- patients[c("age", "dose")]
save_small(hidden, "lm_attribute.rds")
save_small(bare(lm(pain ~ log(age) + dose, patients)), "lm_log.rds")
save_small(bare(lm(pain ~ age + dose, patients, weights = visits + 1)), "lm_weights.rds")

logit <- glm(outcome ~ age + dose + smokes, binomial, patients, control = strict)
save_small(bare(logit), "glm_binomial.rds")
logit_qr <- logit # Q and R of the last step, with its weights
logit_qr$model <- logit_qr$data <- logit_qr$y <- logit_qr$residuals <- logit_qr$linear.predictors <- NULL
logit_qr$fitted.values <- logit_qr$effects <- NULL
save_small(logit_qr, "glm_qr.rds")
save_small(bare(glm(visits ~ age + dose, poisson, patients, control = strict)), "glm_poisson.rds")
save_small(bare(glm(pain ~ age + dose, gaussian, patients)), "glm_gaussian.rds")
save_small(bare(glm(pain ~ age + dose, Gamma("log"), patients)), "glm_gamma.rds")

predictor <- function(records) {
  slopes <- coef(lm(pain ~ age + dose, records))
  function(age, dose) sum(slopes * c(1, age, dose))
}
save_small(predictor(patients), "closure.rds")

cox <- survival::coxph(survival::Surv(weeks, died) ~ age + dose, patients, ties = "breslow")
save_small(cox, "coxph.rds")
few <- function(cox) { # without times, residuals and predictors of all rows
  cox[c("residuals", "linear.predictors")] <- NULL
  attr(cox$terms, ".Environment") <- attr(cox$formula, ".Environment") <- emptyenv()
  cox
}
exact <- survival::coxph.control(eps = 1e-12, toler.chol = 1e-14)
Surv <- survival::Surv
strata <- survival::strata
save_small(few(survival::coxph(Surv(weeks, died) ~ age + dose + strata(town), patients, control = exact)), "coxph_strata.rds")
save_small(few(survival::coxph(Surv(weeks, died) ~ age + dose, patients, visits + 1, control = exact)), "coxph_weights.rds")
save_small(few(survival::coxph(Surv(weeks / 2, weeks, died) ~ age + dose, patients, control = exact)), "coxph_interval.rds")
save_small(bare(lm(pain ~ age * town, patients)), "lm_interaction.rds")
write.csv(model.matrix(pain ~ age * town, patients)[, -1], "interaction.csv", row.names = FALSE)
forest <- randomForest::randomForest(patients[c("age", "dose")], patients$pain, ntree = 2, maxnodes = 4)
save_small(forest, "forest.rds")

linear <- bare(linear)
logit <- bare(logit)
save(linear, logit, file = "several.RData", compress = "xz")
save(linear, patients, file = "beside.RData", compress = "xz")
