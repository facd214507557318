/* Searches where the site is opened from files: browsers start no Worker from a file, so the worker's
   program runs in a frame of its own. Over HTTP this does nothing. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.documentElement.append(this.frame)
      this.inside = this.frame.contentWindow
      this.inside.postMessage = data => setTimeout(() => this.tell(data))
      const program = this.inside.document.createElement("script")
      program.src = new URL(url, location.href).href
      program.onload = () => {
        this.ready = true
        this.waiting.splice(0).forEach(data => this.postMessage(data))
      }
      program.onerror = () => this.onerror?.(new Event("error"))
      this.inside.document.body.append(program)
    }
    tell(data) {
      const event = new MessageEvent("message", { data })
      this.onmessage?.(event)
      this.dispatchEvent(event)
    }
    postMessage(data) {
      if (!this.ready) this.waiting.push(data)
      else setTimeout(() => this.inside?.onmessage?.({ data }))
    }
    terminate() {
      this.frame.remove()
      this.inside = undefined
    }
  }
}
