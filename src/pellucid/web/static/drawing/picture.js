// A view as an SVG file that stands alone: with the colours as they are on the screen.

const DRAWN = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
];
const WRITTEN = [
  ...DRAWN,
  "color",
  "background-color",
  "border",
  "border-radius",
  "border-collapse",
  "padding",
  "margin",
  "display",
  "flex",
  "flex-wrap",
  "flex-direction",
  "gap",
  "align-items",
  "justify-content",
  "grid-template-columns",
  "width",
  "height",
  "min-width",
  "max-width",
  "line-height",
  "text-align",
  "vertical-align",
  "white-space",
  "list-style",
  "overflow",
  "font-variant-numeric",
  "box-sizing",
  "outline",
  "box-shadow",
];
const SVG = "http://www.w3.org/2000/svg";

/** The largest drawing of a panel, or null if the panel is text and boxes only. */
export function mainDrawing(panel) {
  const area = (svg) => svg.clientWidth * svg.clientHeight;
  const found = [...panel.querySelectorAll("svg")].filter(
    (svg) => !svg.closest("button") && area(svg) > 10000,
  );
  return found.reduce((one, other) => (one && area(one) >= area(other) ? one : other), null);
}

/** A panel as the text of an SVG file: its drawing, or else all of it as boxes and text. */
export function picture(panel) {
  const drawing = mainDrawing(panel);
  const svg = drawing ? inlined(drawing, DRAWN) : boxed(panel);
  svg.setAttribute("xmlns", SVG);
  const paper = document.createElementNS(SVG, "rect");
  paper.setAttribute("width", "100%");
  paper.setAttribute("height", "100%");
  paper.setAttribute("fill", background(panel));
  svg.prepend(paper);
  return new XMLSerializer().serializeToString(svg);
}

function background(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)") return colour;
  }
  return "white";
}

/** A copy of an element in which each part has its own colours; canvases become images. */
function inlined(element, properties) {
  const copy = element.cloneNode(true);
  const [from, to] = [
    [element, ...element.querySelectorAll("*")],
    [copy, ...copy.querySelectorAll("*")],
  ];
  from.forEach((original, place) => {
    const style = getComputedStyle(original);
    to[place].removeAttribute("class");
    // Property by property: the content security policy refuses a style attribute.
    for (const name of properties) to[place].style.setProperty(name, style.getPropertyValue(name));
  });
  from.forEach((original, place) => {
    if (original.tagName === "CANVAS") to[place].closest("foreignObject").replaceWith(imageOf(original));
  });
  return copy;
}

function imageOf(canvas) {
  const frame = canvas.closest("foreignObject");
  const image = document.createElementNS(SVG, "image");
  for (const name of ["x", "y", "width", "height"]) image.setAttribute(name, frame.getAttribute(name));
  image.setAttribute("href", canvas.toDataURL());
  return image;
}

/** HTML inside of an SVG, for browsers. */
function boxed(panel) {
  const svg = document.createElementNS(SVG, "svg");
  const { width, height } = panel.getBoundingClientRect();
  svg.setAttribute("width", Math.ceil(width));
  svg.setAttribute("height", Math.ceil(height));
  const frame = document.createElementNS(SVG, "foreignObject");
  frame.setAttribute("width", "100%");
  frame.setAttribute("height", "100%");
  frame.append(inlined(panel, WRITTEN));
  svg.append(frame);
  return svg;
}
