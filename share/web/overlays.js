// What lies above the page: short notices, menus, questions.
import { el, icon, svg } from './dom.js';

const NOTICE_MS = 4500;
const MOST_NOTICES = 3;

/** @param {string} [className] */
export function logo(className = 'logo') {
  return svg('svg', { class: className, viewBox: '0 0 32 32', 'aria-hidden': 'true' },
    svg('rect', { width: 32, height: 32, rx: 8, fill: '#0f766e' }),
    svg('path', { d: 'M11 6v20M11 13c9 0 10-2 10-7', fill: 'none', stroke: '#fff', 'stroke-width': 3, 'stroke-linecap': 'round' }));
}

/** @param {string} text */
export function notify(text) {
  const toast = el('div', { class: 'toast', text });
  const toasts = document.getElementById('toasts');
  toasts.append(toast);
  while (toasts.childElementCount > MOST_NOTICES) toasts.firstChild.remove();
  setTimeout(() => toast.remove(), NOTICE_MS);
}

/** What the server says, as a sentence. @param {string} text */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? '' : '.');
}

/** @param {any} error */
export function complain(error) {
  notify(sentence(error.message ?? String(error)));
}

/** Copies by the command of old, which also works where the page does not come by https or from this machine. @param {string} text */
function copyByCommand(text) {
  const was = document.activeElement;
  const area = el('textarea', { class: 'unseen', value: text });
  (was?.closest('dialog') ?? document.body).append(area);
  area.select();
  const isDone = document.execCommand('copy');
  area.remove();
  was?.focus();
  return isDone;
}

/** @param {string} text @param {string} said @returns {Promise<boolean>} whether it is copied */
export async function copyText(text, said = 'Copied') {
  const isDone = navigator.clipboard ? await navigator.clipboard.writeText(text).then(() => true, () => copyByCommand(text)) : copyByCommand(text);
  notify(isDone ? said : 'The browser does not allow this page to copy.');
  return isDone;
}

/** @typedef {{label: string, icon?: any, sub?: string, act: () => any, checked?: boolean, dot?: string, danger?: boolean}|null} MenuItem */

/** Opens a menu at a button. @param {HTMLElement} anchor @param {MenuItem[]} items null: a line between */
export function openMenu(anchor, items) {
  const menu = el('div', { class: 'menu', popover: 'auto', role: 'menu' }, ...items.map((item) => item === null
    ? el('hr', { role: 'separator' })
    : el('button', {
      type: 'button', role: item.checked === undefined ? 'menuitem' : 'menuitemradio', class: item.danger && 'danger', tabindex: '-1',
      'aria-checked': item.checked === undefined ? null : String(item.checked),
      on: { click: () => { menu.hidePopover(); item.act(); } },
    }, item.icon && icon(item.icon), item.dot && el('span', { class: `dot ${item.dot}` }),
    el('span', {}, item.label, item.sub && el('span', { class: 'sub', text: item.sub })))));
  const entries = [...menu.querySelectorAll('[role^="menuitem"]')];
  menu.addEventListener('keydown', (event) => {
    const at = entries.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: entries.length - 1 }[event.key];
    if (event.key === 'Tab') menu.hidePopover();
    if (/^\S$/u.test(event.key) && !event.ctrlKey && !event.altKey && !event.metaKey) { // to the next one that begins so
      event.preventDefault();
      event.stopPropagation();
      [...entries.slice(at + 1), ...entries].find((entry) => entry.innerText.trim().toLowerCase().startsWith(event.key.toLowerCase()))?.focus();
    }
    if (to === undefined) return;
    event.preventDefault();
    entries[(to + entries.length) % entries.length].focus();
  });
  menu.addEventListener('toggle', (event) => {
    if (event.newState !== 'closed') return;
    const back = anchor.isConnected ? anchor : document.getElementById(anchor.id); // it may have been drawn anew
    back?.setAttribute('aria-expanded', 'false');
    if (menu.contains(document.activeElement) || document.activeElement === document.body) back?.focus();
    menu.remove();
  });
  document.body.append(menu);
  menu.showPopover();
  const box = anchor.getBoundingClientRect();
  const below = box.bottom + 6 + menu.offsetHeight < innerHeight;
  menu.style.top = `${Math.max(8, below ? box.bottom + 6 : box.top - 6 - menu.offsetHeight)}px`;
  menu.style.left = `${Math.max(8, Math.min(box.left, innerWidth - menu.offsetWidth - 8))}px`;
  anchor.setAttribute('aria-expanded', 'true');
  (entries.find((entry) => entry.getAttribute('aria-checked') === 'true') ?? entries[0])?.focus();
}

/**
 * A dialog that goes when it is closed.
 * @param {string} label @param {string} className @param {...Node} children
 * @returns {HTMLDialogElement}
 */
export function openDialog(label, className, ...children) {
  const dialog = el('dialog', { class: `dialog ${className}`, 'aria-label': label }, ...children);
  dialog.addEventListener('close', () => dialog.remove());
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks for a decision. @param {{title: string, text: string, yes: string, danger?: boolean}} question @returns {Promise<boolean>}
 */
export function confirmed({ title, text, yes, danger }) {
  return new Promise((resolve) => {
    const form = el('form', { method: 'dialog' }, el('h2', { text: title }), el('p', { class: 'muted', text }),
      el('div', { class: 'dialog-end' },
        el('button', { class: 'button', value: 'no', text: 'Keep', autofocus: danger }),
        el('button', { class: `button ${danger ? 'danger' : 'primary'}`, value: 'yes', text: yes, autofocus: !danger })));
    const dialog = openDialog(title, 'narrow', form);
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'));
  });
}

/** Asks for a line of text; null: none was given. @param {{title: string, label: string, value: string}} question @returns {Promise<string|null>} */
export function asked({ title, label, value }) {
  return new Promise((resolve) => {
    const input = el('input', { id: 'asked', value, maxlength: '200', autofocus: true });
    const form = el('form', { method: 'dialog' }, el('h2', { text: title }),
      el('div', { class: 'field' }, el('label', { for: 'asked', text: label }), input),
      el('div', { class: 'dialog-end' },
        el('button', { class: 'button', type: 'button', text: 'Cancel', on: { click: () => dialog.close() } }),
        el('button', { class: 'button primary', value: 'yes', text: 'Save' })));
    const dialog = openDialog(title, 'narrow', form);
    input.select();
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes' ? input.value.trim() : null));
  });
}
