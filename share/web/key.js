// The key of who uses the page: asked for once a tab, kept as long as the tab.
import { el } from './dom.js';

const NAME = 'parley.key';
let key = sessionStorage.getItem(NAME) ?? '';

/** @returns {Record<string, string>} the header of each call */
export function authorization() {
  return key === '' ? {} : { Authorization: `Bearer ${key}` };
}

export function hasKey() {
  return key !== '';
}

/** Keeps a key; '' forgets it. @param {string} value */
export function keepKey(value) {
  key = value;
  if (value === '') sessionStorage.removeItem(NAME);
  else sessionStorage.setItem(NAME, value);
}

/**
 * Asks for a key, and asks again until one is admitted.
 * @param {() => Promise<any>} attempt fails with code unauthenticated while the key is not admitted
 */
export function askForKey(attempt) {
  const input = el('input', { type: 'password', id: 'key', autocomplete: 'off', required: true, spellcheck: 'false' });
  const why = el('p', { class: 'field-error', role: 'alert' });
  const form = el('form', { method: 'dialog' },
    el('h2', { text: 'This server asks for a key' }),
    el('p', { class: 'muted', text: 'Your administrator has it. It stays in this tab and is sent with each request.' }),
    el('label', { for: 'key', text: 'Key' }), input, why,
    el('div', { class: 'dialog-end' }, el('button', { class: 'button primary', text: 'Continue' })));
  const dialog = el('dialog', { class: 'dialog narrow', 'aria-label': 'Key' }, form);
  document.body.append(dialog);
  dialog.addEventListener('cancel', (event) => event.preventDefault());
  dialog.showModal();
  return new Promise((resolve) => {
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      keepKey(input.value.trim());
      try {
        resolve(await attempt());
        dialog.close();
        dialog.remove();
      } catch (error) {
        why.textContent = error.code === 'unauthenticated' ? 'The server does not know this key.' : error.message;
        input.select();
      }
    });
  });
}
