// The reporter of Vitest, in the process that starts those in which the tests run.
import { createRequire } from "node:module";

const { note, finish } = createRequire(import.meta.url)("./node.cjs").claim();
const STATES = { __proto__: null, pass: "PASSED", fail: "FAILED", skip: "SKIPPED", todo: "SKIPPED" };

// walk notes the tests of a file, or of a suite in it, by the titles around them. A suite or a file that fails by itself has an error of its own.
function walk(task, titles) {
	for (const each of task.tasks ?? []) {
		const path = [...titles, each.name], failure = each.result?.errors?.[0];
		if (each.type === "suite") {
			if (failure !== undefined) note(path, "ERROR", failure);
			walk(each, path);
		} else note(path, STATES[each.mode === "run" || each.mode === "only" ? each.result?.state : each.mode] ?? "ERROR", failure);
	}
}

function report(files, errors) {
	for (const file of files) {
		if (file.result?.errors?.length) note([file.name], "ERROR", file.result.errors[0]);
		walk(file, []);
	}
	for (const failure of errors) note(["unhandled"], "ERROR", failure);
	finish();
}

export default class Reporter {
	onFinished(files = [], errors = []) {
		report(files, errors);
	}
	onTestRunEnd(modules, errors = []) {
		report(modules.map((module) => module.task), errors);
	}
}
