// Refresh the status page.
const period = 30 * 1000;
setInterval(() => location.reload(), period);
