// Where messages are written: text, files, sending and stopping. A draft stays with its conversation while others are looked at.
import { el, button } from './dom.js';
import { ofTab } from './memory.js';
import { complain, notify } from './overlays.js';

const MAX_FILE_BYTES = 1 << 20;
const MAX_HEIGHT = 0.38; // of the window

/** A file as a part of a message. @param {{name: string, text: string}} file */
function quoted({ name, text }) {
  const ticks = '`'.repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map((m) => m[0].length + 1)));
  const language = /\.(\w{1,10})$/.exec(name)?.[1] ?? '';
  return `${name}:\n${ticks}${language}\n${text.replace(/\n$/, '')}\n${ticks}`;
}

export class Composer {
  #files = [];
  #chat = null;

  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.input = el('textarea', { rows: '1', placeholder: 'Message', 'aria-label': 'Message', dir: 'auto',
      on: { input: () => this.#changed(), keydown: (event) => this.#key(event), paste: (event) => this.#paste(event) } });
    this.chosen = el('input', { type: 'file', multiple: true, hidden: true, on: { change: () => this.#take(this.chosen.files) } });
    this.chips = el('div', { class: 'files' });
    this.meter = el('span', { class: 'meter' });
    this.tags = el('span');
    this.send = button('send', 'Send', () => this.#act(), { class: 'ghost send' });
    this.node = el('form', { class: 'composer', 'aria-label': 'Write a message', on: { submit: (event) => { event.preventDefault(); this.#act(); } } },
      this.chips, this.input,
      el('div', { class: 'composer-bar' }, button('clip', 'Attach text files', () => this.chosen.click()), this.chosen, this.tags,
        el('span', { class: 'grow' }), this.meter, this.send));
    this.#acceptDrops();
  }

  /** @param {import('./chat.js').Chat} chat */
  draw(chat) {
    if (chat !== this.#chat) {
      this.#chat = chat;
      this.#files = [];
      this.input.value = ofTab.get(`draft.${chat.id}`, '');
      this.#drawFiles();
      this.#fit();
    }
    this.#drawSend();
    this.#drawMeter(chat);
    const name = chat.modelName || this.app.library.model('')?.name;
    this.input.placeholder = name ? `Message ${name}` : 'Message';
    const tags = [chat.wishes.schema && 'JSON', chat.wishes.tools && 'Tools'].filter(Boolean);
    this.tags.replaceChildren(...tags.map((text) => el('span', { class: 'tag', text })));
  }

  /** @param {string} text */
  suggest(text) {
    this.input.value = text;
    this.#changed();
    this.input.focus();
  }

  focus() {
    this.input.focus();
  }

  get hasFocus() {
    return document.activeElement === this.input;
  }

  leave() {
    this.input.blur();
  }

  #drawSend() {
    const isBusy = this.#chat.isBusy;
    if (this.send.classList.contains('is-stop') !== isBusy) {
      const fresh = button(isBusy ? 'stop' : 'send', isBusy ? 'Stop (Esc)' : 'Send', () => this.#act(), { class: `ghost send${isBusy ? ' is-stop' : ''}` });
      const hadFocus = document.activeElement === this.send;
      this.send.replaceWith(fresh);
      this.send = fresh;
      if (hadFocus) fresh.focus();
    }
    this.send.disabled = !isBusy && this.input.value.trim() === '' && this.#files.length === 0;
  }

  /** @param {import('./chat.js').Chat} chat */
  #drawMeter(chat) {
    const context = this.app.library.model(chat.modelName)?.context ?? 0;
    const used = chat.contextTokens;
    const text = context > 0 && used > 0 ? `${used.toLocaleString()} of ${context.toLocaleString()} tokens` : '';
    if (this.meter.dataset.text === text) return;
    this.meter.dataset.text = text;
    this.meter.replaceChildren(...(text === '' ? [] : [el('progress', { max: context, value: used, 'aria-label': 'Context used' }), el('span', { text })]));
  }

  #changed() {
    ofTab.set(`draft.${this.#chat.id}`, this.input.value || null);
    this.#fit();
    this.#drawSend();
  }

  #fit() {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * MAX_HEIGHT)}px`;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.#chat.isBusy) this.#act();
  }

  #act() {
    if (this.#chat.isBusy) {
      this.#chat.stop()?.catch(complain);
      return;
    }
    const text = [...this.#files.map(quoted), this.input.value.trim()].filter(Boolean).join('\n\n');
    if (text === '') return;
    ofTab.set(`draft.${this.#chat.id}`, null);
    this.#files = [];
    this.input.value = '';
    this.#drawFiles();
    this.#fit();
    this.app.send([{ role: 'user', text }]).catch((error) => {
      this.suggest(text); // nothing that was written is lost
      complain(error);
    });
  }

  /** @param {ClipboardEvent} event */
  #paste(event) {
    if (event.clipboardData?.files.length) {
      event.preventDefault();
      this.#take(event.clipboardData.files);
    }
  }

  /** @param {FileList} files */
  async #take(files) {
    for (const file of files) {
      if (file.size > MAX_FILE_BYTES) {
        notify(`${file.name} is too large: 1 MiB of text at most.`);
        continue;
      }
      const bytes = new Uint8Array(await file.arrayBuffer());
      try {
        const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
        if (text.includes('\0')) throw new TypeError('binary');
        this.#files.push({ name: file.name, text });
      } catch {
        notify(`${file.name} is not text in UTF-8.`);
      }
    }
    this.chosen.value = '';
    this.#drawFiles();
    this.#drawSend();
    this.input.focus();
  }

  #drawFiles() {
    this.chips.replaceChildren(...this.#files.map((file) => el('span', { class: 'file' }, file.name,
      button('close', `Remove ${file.name}`, () => {
        this.#files = this.#files.filter((other) => other !== file);
        this.#drawFiles();
        this.#drawSend();
        this.input.focus();
      }))));
  }

  #acceptDrops() {
    const mark = (isOver) => document.body.classList.toggle('is-dropping', isOver);
    document.addEventListener('dragover', (event) => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      mark(true);
    });
    document.addEventListener('dragleave', (event) => event.relatedTarget === null && mark(false));
    document.addEventListener('drop', (event) => {
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      mark(false);
      this.#take(event.dataTransfer.files);
    });
  }
}
