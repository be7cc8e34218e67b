// The routes of the back end. Each answer is one of the structures of `_answers.py`.

const BASE = new URL("..", import.meta.url);

/** The address of a route. */
export function address(route, query = {}) {
  const url = new URL(route, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null) url.searchParams.set(name, value);
  }
  return url.href;
}

/** What a route answers. Throws an Error with the server's words. */
export async function ask(route, query = {}, signal = undefined) {
  let response;
  try {
    response = await fetch(address(route, query), { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("TensorBoard does not answer. Is it still running?");
  }
  const told = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw new Error(told.error);
  return told;
}
