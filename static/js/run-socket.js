// The live connection. Reconnects with backoff and jitter from the last known seq; silence longer than three pings counts as a dead line.
const SILENCE_MS = 45_000;
const FIRST_RETRY_MS = 400;
const LAST_RETRY_MS = 15_000;
const REFUSED = { 4401: "You are signed out. Sign in again to follow this job.", 4404: "This job is not yours or no longer exists." };

/**
 * `url(after)` → socket address; `after()` → last seq the page holds; `onEvents(events)`; `onPing(message)` with the server's last seq, since when the engine is away, and which part of it the job waits for; `onStatus({ kind, text, retrySeconds })` with kind opening | connecting | live | waiting | refused | closed.
 */
export function follow({ url, after, onEvents, onPing, onStatus, random = Math.random }) {
  let socket = null;
  let retryTimer = 0;
  let silenceTimer = 0;
  let failures = 0;
  let stopped = false;

  function connect() {
    clearTimeout(retryTimer);
    if (stopped) return;
    onStatus({ kind: failures ? "connecting" : "opening" });
    const mine = new WebSocket(url(after()));
    socket = mine;
    mine.addEventListener("open", () => socket === mine && heard());
    mine.addEventListener("message", (message) => socket === mine && receive(JSON.parse(message.data)));
    mine.addEventListener("close", (event) => socket === mine && lost(event.code));
    heardAt();
  }

  function receive(message) {
    // Not on opening: a server that accepts and closes at once must not be asked ever faster.
    failures = 0;
    heard();
    if (message.type === "events") onEvents(message.events);
    if (message.type === "ping") onPing(message);
  }

  function heard() {
    onStatus({ kind: "live" });
    heardAt();
  }

  function heardAt() {
    clearTimeout(silenceTimer);
    silenceTimer = setTimeout(drop, SILENCE_MS);
  }

  function lost(code) {
    clearTimeout(silenceTimer);
    socket = null;
    if (stopped) return;
    clearTimeout(retryTimer);
    if (REFUSED[code]) return onStatus({ kind: "refused", text: REFUSED[code] });
    const ceiling = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** failures);
    const wait = ceiling * (0.5 + random() / 2);
    failures += 1;
    onStatus({ kind: "waiting", retrySeconds: wait / 1000 });
    retryTimer = setTimeout(connect, wait);
  }

  const retry = () => socket === null && connect();
  const drop = () => {
    socket?.close();
    lost(0);
  };
  addEventListener("online", retry);
  addEventListener("offline", drop);
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && retry());
  connect();

  return {
    retry,
    stop() {
      stopped = true;
      clearTimeout(retryTimer);
      clearTimeout(silenceTimer);
      removeEventListener("online", retry);
      removeEventListener("offline", drop);
      socket?.close(1000);
      onStatus({ kind: "closed" });
    },
  };
}
