// The page at /: chat with conversations that live on the server.
import { App } from './app.js';

new App().start();
