// What changed, told to whoever shows it: at most once a frame, so that many events cost one drawing.

export class Signal {
  #listeners = new Set();
  #isDue = false;

  /** @param {() => void} listener @returns {() => void} ends it */
  on(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  emit() {
    if (this.#isDue) return;
    this.#isDue = true;
    const tell = () => {
      if (!this.#isDue) return;
      this.#isDue = false;
      for (const listener of [...this.#listeners]) listener();
    };
    // A page that is not shown gets no frames.
    if (document.hidden) setTimeout(tell, 50);
    else requestAnimationFrame(tell);
  }
}
