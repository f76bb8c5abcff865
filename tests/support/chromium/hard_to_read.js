// What `tests.support.chromium.browser.hard_to_read` runs in a page: returns a sentence for each fault.
() => {
  const found = [];
  const rgba = css => {
    const numbers = css.match(/[\d.]+/g).map(Number);
    return numbers.length > 3 ? numbers : [...numbers, 1];
  };
  const over = (top, below) => top.slice(0, 3).map((part, at) => part * top[3] + below[at] * (1 - top[3]));
  const light = colour => {
    const [red, green, blue] = colour.map(part => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = element => {
    const above = [];
    for (let each = element; each; each = each.parentElement) above.push(rgba(getComputedStyle(each).backgroundColor));
    return above.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const text = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (text.nextNode()) {
    const element = text.currentNode.parentElement, words = text.currentNode.data.trim().slice(0, 40);
    if (!words || !element.checkVisibility()) continue;
    const style = getComputedStyle(element), picture = element.closest('svg'), below = ground(element);
    const ink = over(rgba(picture ? style.fill : style.color), below);
    const [darker, lighter] = [light(ink), light(below)].sort((one, other) => one - other);
    const contrast = (lighter + 0.05) / (darker + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (contrast < (large ? 3 : 4.5)) found.push(`contrast ${contrast.toFixed(2)}: ${words}`);
    if (!picture) continue;
    const box = element.getBoundingClientRect(), frame = picture.getBoundingClientRect();
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
        || box.bottom > frame.bottom + 1) found.push(`cut off: ${words}`);
    const shown = size * frame.width / picture.viewBox.baseVal.width;
    if (shown < 9) found.push(`${shown.toFixed(1)} pixels high: ${words}`);
  }
  const page = document.scrollingElement;
  if (page.scrollWidth > page.clientWidth) found.push(`the page is ${page.scrollWidth} wide`);
  const scrolls = element => {
    for (let each = element; each && each !== document.body; each = each.parentElement)
      if (/auto|scroll/.test(getComputedStyle(each).overflowX)) return true;
    return false;
  };
  for (const element of document.body.querySelectorAll('*')) {
    if (element.closest('svg') || !element.checkVisibility() || scrolls(element.parentElement)) continue;
    if (element.getBoundingClientRect().right > page.clientWidth + 1) found.push(`too wide: ${element.outerHTML.slice(0, 60)}`);
  }
  return found;
}
