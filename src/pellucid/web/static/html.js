// Preact with htm: HTML in template strings, no build step.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
