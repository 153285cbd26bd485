// The key of who uses the page: asked for once a tab, kept as long as the tab.
import { el } from './dom.js';
import { ofTab } from './memory.js';

let key = ofTab.get('key', '');

/** @returns {Record<string, string>} the header of each call */
export function authorization() {
  return key === '' ? {} : { Authorization: `Bearer ${key}` };
}

/** Of a WebSocket, whose first message has it; '': there is none. */
export function keyInUse() {
  return key;
}

export function hasKey() {
  return key !== '';
}

/** Keeps a key; '' forgets it. @param {string} value */
export function keepKey(value) {
  key = value;
  ofTab.set('key', value || null);
}

/**
 * Asks for a key, and asks again until one is admitted; whoever has another one already may leave it at that.
 * @param {() => Promise<any>} attempt fails with code unauthenticated while the key is not admitted
 * @param {string} [title]
 * @returns {Promise<boolean>} whether a new one was given
 */
export function askForKey(attempt, title) {
  const before = title === undefined ? '' : key;
  const input = el('input', { type: 'password', id: 'key', autocomplete: 'off', required: true, spellcheck: 'false' });
  const why = el('p', { class: 'field-error', role: 'alert' });
  const form = el('form', { method: 'dialog' },
    el('h2', { text: title ?? 'This server asks for a key' }),
    el('p', { class: 'muted', text: 'Your administrator has it. It stays in this tab and is sent with each request.' }),
    el('label', { for: 'key', text: 'Key' }), input, why,
    el('div', { class: 'dialog-end' }, before !== '' && el('button', { type: 'button', class: 'button', text: 'Cancel', on: { click: () => dialog.close() } }),
      el('button', { class: 'button primary', text: 'Continue' })));
  const dialog = el('dialog', { class: 'dialog narrow', 'aria-label': 'Key' }, form);
  document.body.append(dialog);
  dialog.addEventListener('cancel', (event) => before === '' && event.preventDefault());
  dialog.showModal();
  let isGiven = false;
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      if (!isGiven) keepKey(before);
      dialog.remove();
      resolve(isGiven);
    });
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      keepKey(input.value.trim());
      try {
        await attempt();
        isGiven = true;
        dialog.close();
      } catch (error) {
        why.textContent = error.code === 'unauthenticated' ? 'The server does not know this key.' : error.message;
        input.select();
      }
    });
  });
}
