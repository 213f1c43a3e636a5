// Zensical has a name like this one loaded instead of a script from another host.
// Browsers give no worker to pages that were opened from files. There, this runs the worker of the search in a hidden
// frame, so that search works without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => setTimeout(() => this.hear(structuredClone(data)));
      const script = this.inside.document.createElement("script");
      script.src = address;
      this.ready = new Promise((done, failed) => {
        script.onload = done;
        script.onerror = failed;
      });
      this.inside.document.body.append(script);
    }

    hear(data) {
      const message = new MessageEvent("message", { data });
      this.dispatchEvent(message);
      this.onmessage?.(message);
    }

    postMessage(sent) {
      const data = structuredClone(sent);
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
