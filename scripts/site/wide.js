/* Marks tables and figures that are wider than their column: a sign above names the hidden part, and
   the edge fades until the reader has scrolled to the end. */
const frames = ".md-typeset__scrollwrap, .figure"

function mark(frame) {
  const hidden = frame.scrollWidth - frame.clientWidth - frame.scrollLeft
  frame.classList.toggle("more", hidden > 2)
}

function watch(frame) {
  const sign = document.createElement("p")
  sign.className = "more-sign"
  sign.textContent = "more to the right \u2192"
  frame.before(sign)
  frame.addEventListener("scroll", () => mark(frame))
  new ResizeObserver(() => mark(frame)).observe(frame)
  mark(frame)
}

function start() {
  for (const image of document.querySelectorAll(".md-content p > img")) {
    if (image.naturalWidth > 600) image.parentElement.classList.add("figure")
  }
  for (const frame of document.querySelectorAll(frames)) watch(frame)
  window.marked = true
}

/* The theme puts tables into frames when the page is loaded. */
addEventListener("load", () => requestAnimationFrame(start))
