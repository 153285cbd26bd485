// What a conversation is asked with: the system prompt, sampling, a schema, tools.
import { el, button } from './dom.js';
import { toolsOf } from './chat.js';
import { complain } from './overlays.js';

const NUMBERS = [
  ['temperature', 'Temperature', { min: 0, max: 5, step: 0.05 }, '0 always takes the likeliest token.'],
  ['topP', 'Top p', { min: 0.01, max: 1, step: 0.01 }],
  ['topK', 'Top k', { min: 0, step: 1 }],
  ['minP', 'Min p', { min: 0, max: 1, step: 0.01 }],
  ['repetitionPenalty', 'Repetition', { min: 0.01, step: 0.01 }],
  ['presencePenalty', 'Presence', { min: -2, max: 2, step: 0.1 }],
  ['frequencyPenalty', 'Frequency', { min: -2, max: 2, step: 0.1 }],
  ['maxTokens', 'Longest reply', { min: 0, step: 1 }, 'In tokens.'],
];
const CHOICES = [['', 'As the model likes'], ['MODE_REQUIRED', 'In each reply'], ['MODE_NONE', 'In no reply']];
const EFFORTS = [['', 'As the model does'], ['EFFORT_NONE', 'None'], ['EFFORT_LOW', 'Low'], ['EFFORT_MEDIUM', 'Medium'], ['EFFORT_HIGH', 'High']];

/** @param {string} id @param {string} label @param {Node} input @param {string} [hint] @param {boolean} [isChanged] */
function field(id, label, input, hint, isChanged) {
  return el('div', { class: 'field' },
    el('label', { for: id }, label, isChanged && el('span', { class: 'changed', title: 'Changed from the model’s' })),
    input, hint && el('p', { class: 'hint', text: hint }));
}

export class Settings {
  #chat = null;
  #opened = null; // the conversation's id when the form was drawn

  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.node = el('form', { class: 'form', 'aria-label': 'Settings', on: { submit: (event) => event.preventDefault() } });
  }

  /** @param {import('./chat.js').Chat} chat */
  draw(chat) {
    const id = chat.conversation === null ? null : chat.id;
    if (chat === this.#chat && id === this.#opened) return; // what is being typed stays
    this.#chat = chat;
    this.#opened = id;
    this.#fill();
  }

  #fill() {
    const chat = this.#chat;
    this.node.replaceChildren(
      this.#system(chat),
      el('hr'),
      el('h2', { text: 'Sampling' }),
      el('p', { class: 'hint', text: 'For the turns to come. An empty field leaves it to the model.' }),
      el('div', { class: 'pair' }, ...NUMBERS.map((row) => this.#number(chat, row))),
      this.#seed(chat), this.#stop(chat),
      button('retry', 'Reset sampling', () => this.#save({}).then(() => this.#fill()), { text: true }),
      el('hr'),
      el('h2', { text: 'Each reply' }),
      this.#select(chat, 'effort', 'Reasoning', EFFORTS), this.#text(chat, 'schema', 'JSON schema', '{"type": "object", "properties": {…}}', 'The reply will match it.', JSON.parse),
      this.#text(chat, 'tools', 'Tools', '[{"name": "weather", "description": "…", "parameters": {…}}]', 'Functions that the model may call. You answer its calls in the conversation.', toolsOf),
      this.#select(chat, 'choice', 'Calls', CHOICES));
  }

  /** @param {any} chat */
  #system(chat) {
    const isFixed = chat.id !== null;
    const input = el('textarea', { id: 'system', rows: '4', readonly: isFixed, value: chat.system ?? '', placeholder: isFixed ? 'The model’s own' : 'You are…',
      on: { input: () => { chat.draft.system = input.value; } } });
    return el('div', { class: 'field' }, el('label', { for: 'system', text: 'System prompt' }), input,
      isFixed
        ? button('plus', 'New conversation with this prompt', () => this.app.openNew({ system: input.value, model: chat.modelName }), { text: true })
        : el('p', { class: 'hint', text: 'It stays the same for the whole conversation.' }));
  }

  /** @param {any} chat @param {any[]} row */
  #number(chat, [name, label, limits, hint]) {
    const value = chat.sampling?.[name];
    const input = el('input', { id: name, type: 'number', inputmode: 'decimal', placeholder: 'model’s', ...limits, value: value ?? '',
      on: { change: () => this.#set(name, input.value === '' ? undefined : Number(input.value)) } });
    return field(name, label, input, hint, value !== undefined);
  }

  /** @param {any} chat */
  #seed(chat) {
    const input = el('input', { id: 'seed', inputmode: 'numeric', pattern: '\\d*', placeholder: 'drawn when the conversation was opened', value: chat.sampling?.seed ?? '',
      on: { change: () => this.#set('seed', /^\d+$/.test(input.value) ? input.value : undefined) } });
    return field('seed', 'Seed', input, 'The same seed, turn and text give the same reply.', chat.sampling?.seed !== undefined);
  }

  /** @param {any} chat */
  #stop(chat) {
    const input = el('textarea', { id: 'stop', rows: '2', class: 'code-input', placeholder: 'One a line', value: (chat.sampling?.stop ?? []).join('\n'),
      on: { change: () => this.#set('stop', input.value === '' ? undefined : input.value.split('\n').filter(Boolean)) } });
    return field('stop', 'Stop texts', input, undefined, Boolean(chat.sampling?.stop?.length));
  }

  /** @param {any} chat @param {string} name @param {string} label @param {string[][]} options */
  #select(chat, name, label, options) {
    const input = el('select', { id: name, on: { change: () => chat.saveWishes({ ...chat.wishes, [name]: input.value }) } },
      ...options.map(([value, text]) => el('option', { value, text, selected: value === chat.wishes[name] })));
    return field(name, label, input);
  }

  /** @param {any} chat @param {string} name @param {string} label @param {string} placeholder @param {string} hint @param {(text: string) => any} check */
  #text(chat, name, label, placeholder, hint, check) {
    const why = el('p', { class: 'field-error', role: 'alert', id: `${name}-error` });
    const input = el('textarea', { id: name, rows: '4', class: 'code-input', spellcheck: 'false', placeholder, value: chat.wishes[name], 'aria-describedby': why.id,
      on: { change: () => {
        try {
          if (input.value.trim() !== '') check(input.value);
          why.textContent = '';
          input.removeAttribute('aria-invalid');
          chat.saveWishes({ ...chat.wishes, [name]: input.value.trim() });
        } catch (error) {
          why.textContent = `Not used yet: ${error.message}.`;
          input.setAttribute('aria-invalid', 'true');
        }
      } } });
    const node = field(name, label, input, hint);
    node.append(why);
    return node;
  }

  /** @param {string} name @param {any} value */
  #set(name, value) {
    const { [name]: old, ...sampling } = this.#chat.sampling ?? {};
    return this.#save(value === undefined ? sampling : { ...sampling, [name]: value }, name);
  }

  /** @param {object} sampling @param {string} [name] the field to return to */
  async #save(sampling, name) {
    try {
      await this.#chat.setSampling(sampling);
    } catch (error) {
      complain(error);
      return;
    }
    const label = name && this.node.querySelector(`label[for="${name}"]`);
    if (!label) return;
    label.querySelector('.changed')?.remove();
    if (sampling[name] !== undefined) label.append(el('span', { class: 'changed', title: 'Changed from the model’s' }));
  }
}
