// The reporter of node's own test runner, in the process that starts those in which the tests run.
import { createRequire } from "node:module";
import { resolve } from "node:path";

const { note, finish } = createRequire(import.meta.url)("./node.cjs").claim();

export default async function* report(events) {
	const titles = []; // of the tests and suites around the next event
	for await (const { type, data } of events) {
		if (type === "test:start") {
			titles.length = data.nesting;
			titles[data.nesting] = data.name;
		}
		if (type !== "test:pass" && type !== "test:fail" || data.details?.type === "suite" && type === "test:pass") continue;
		const path = [...titles.slice(0, data.nesting), data.name];
		const file = data.nesting === 0 && data.file !== undefined && resolve(data.name) === data.file; // stands for a file
		if (file && type === "test:pass") continue;
		const failure = data.details?.error?.cause ?? data.details?.error;
		if (data.todo !== undefined && data.todo !== false) note(path, "XFAIL");
		else if (data.skip !== undefined && data.skip !== false) note(path, "SKIPPED");
		else if (type === "test:pass") note(path, "PASSED");
		else note(path, file ? "ERROR" : "FAILED", failure);
	}
	finish();
	yield "";
}
