// What the browser keeps for the page, by name. A browser that keeps nothing (a full or forbidden store) loses comfort only.

const PREFIX = 'parley.';

/** @param {Storage} storage */
const memoryIn = (storage) => ({
  /** @param {string} name @param {any} [otherwise] */
  get(name, otherwise = null) {
    try {
      return JSON.parse(storage.getItem(PREFIX + name)) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  /** @param {string} name @param {any} value undefined or null: forgets it */
  set(name, value) {
    try {
      if (value === undefined || value === null) storage.removeItem(PREFIX + name);
      else storage.setItem(PREFIX + name, JSON.stringify(value));
    } catch { /* full or forbidden */ }
  },
});

/** As long as the browser, in all tabs. */
export const kept = memoryIn(localStorage);
/** As long as the tab. */
export const ofTab = memoryIn(sessionStorage);
