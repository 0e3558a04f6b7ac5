/* Search without a server. A page that is opened from a file may not start a worker: an invisible frame stands in. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inner = frame.contentWindow;
      this.inner.answer = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const page = this.inner.document;
      page.open();
      page.write(`<script>window.postMessage = (data) => window.answer(data);<\/script><script src="${url}"><\/script>`);
      page.close();
      this.ready = new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
