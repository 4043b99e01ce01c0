// Bring the stored labs of this page to life: no kernel, no network, no server.
//
// A classic script, because a browser refuses module files on a page opened from a file. The page
// holds the state of its labs in <script id="labs">, as {model: {module, state, buffers}}; the code
// of each module is in window.labModules. A lab is an anywidget: its module exports
// {initialize, render}, or a function that returns them, and gets a model with get, set, on, off
// and save_changes. When all labs are up, <html data-hydrated="1">.
(function () {
  "use strict";

  class Model {
    #state;
    #listeners = new Map();
    constructor(state) {
      this.#state = state;
    }
    get(name) {
      return this.#state[name];
    }
    set(name, value) {
      const changes = typeof name === "object" ? name : { [name]: value };
      const changed = Object.keys(changes).filter((key) => !same(this.#state[key], changes[key]));
      Object.assign(this.#state, changes);
      for (const key of changed) this.#tell(`change:${key}`, changes[key]);
      if (changed.length) this.#tell("change");
    }
    save_changes() {} // there is no kernel to tell
    send() {}
    on(events, listener) {
      for (const event of events.split(/\s+/)) {
        if (!this.#listeners.has(event)) this.#listeners.set(event, new Set());
        this.#listeners.get(event).add(listener);
      }
    }
    off(events, listener) {
      for (const event of events ? events.split(/\s+/) : [...this.#listeners.keys()]) {
        if (listener) this.#listeners.get(event)?.delete(listener);
        else this.#listeners.delete(event);
      }
    }
    #tell(event, value) {
      for (const listener of [...(this.#listeners.get(event) ?? [])]) listener(this, value);
    }
  }

  function same(a, b) {
    return a === b || (typeof a === "object" && JSON.stringify(a) === JSON.stringify(b));
  }

  // Arrays of numbers are stored as base64 beside the state; put them where they belong.
  function withBuffers({ state, buffers }) {
    for (const { path, data } of buffers) {
      const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
      const holder = path.slice(0, -1).reduce((object, key) => object[key], state);
      holder[path.at(-1)] = new DataView(bytes.buffer);
    }
    return state;
  }

  const loading = new Map();
  function load(name) {
    if (!loading.has(name)) {
      const code = new Blob([window.labModules[name]], { type: "text/javascript" });
      loading.set(name, import(URL.createObjectURL(code)).then(async ({ default: widget }) => {
        return typeof widget === "function" ? await widget() : widget;
      }));
    }
    return loading.get(name);
  }

  const models = new Map();
  async function modelOf(id, entry, widget) {
    if (!models.has(id)) {
      const model = new Model(withBuffers(entry));
      models.set(id, model);
      await widget.initialize?.({ model });
    }
    return models.get(id);
  }

  // The still keeps the place until the lab is drawn, so that the page does not jump.
  async function start(place, entry) {
    const widget = await load(entry.module);
    const el = document.createElement("div");
    el.className = "lab-live lab-starting";  // laid out in full width, not in sight
    const model = await modelOf(place.dataset.model, entry, widget);
    if (entry.state._css) {
      const style = document.createElement("style");
      style.textContent = entry.state._css;
      el.append(style);
    }
    const box = document.createElement("div");
    el.append(box);
    place.append(el);
    await widget.render?.({ model, el: box });
    for (const still of place.querySelectorAll(".lab-still")) still.hidden = true;
    el.classList.remove("lab-starting");
  }

  async function hydrate() {
    const labs = JSON.parse(document.getElementById("labs").textContent);
    for (const place of document.querySelectorAll(".lab[data-model]")) {
      try {
        await start(place, labs[place.dataset.model]);
      } catch (error) {
        place.querySelector(".lab-live")?.remove();
        console.error("A lab could not start; its still picture remains.", error);
      }
    }
    document.documentElement.dataset.hydrated = "1";
  }
  hydrate();
})();
