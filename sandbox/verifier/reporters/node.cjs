// Reports which tests ran, over a descriptor that the verifier opened: those of mocha and jest, whose reporter this is, and of node's own test runner, by node-test.mjs.
//
// Loaded before everything else (node --require), it takes its nonce and what it needs of node before code of the workspace can change that. Where such code runs in this
// process it can forge what is reported: canaries show that it does. node closes the descriptor for everything that it starts.
"use strict";

const { fstatSync, readSync, writeSync } = require("fs");
const { createRequire } = require("module");
const { isMainThread } = require("worker_threads");
const { stringify } = JSON, bytesOf = Buffer.from, on = process.on.bind(process), folder = process.cwd();
const CHANNEL = 9, MOST_NAME = 2000, MOST_MESSAGE = 400, MOST_MESSAGES = 200;

let nonce = "";
try {
	const bytes = Buffer.alloc(33);
	if (isMainThread && fstatSync(CHANNEL).isSocket() && readSync(CHANNEL, bytes, 0, 33) === 33 && bytes[32] === 10) nonce = bytes.toString("latin1", 0, 32);
} catch {
	// there is no channel
}

function send(record) {
	if (nonce === "") return;
	const line = bytesOf(nonce + " " + stringify(record) + "\n");
	for (let sent = 0; sent < line.length; ) sent += writeSync(CHANNEL, line, sent);
}

// record is an object that has nothing of what all objects have, which code under test could have changed.
const record = (fields) => ({ __proto__: null, ...fields });

const BADNESS = record({ PASSED: 1, XFAIL: 2, SKIPPED: 3, FAILED: 4, ERROR: 5 });
const results = record({});
let ran = 0, messages = 0, claimed = false, finished = false;

// note notes how a test ended. Of two tests of one name the worse one counts.
function note(titles, status, failure) {
	let name = "";
	for (let i = 0; i < titles.length; i++) name += (name === "" ? "" : " > ") + titles[i];
	name = cut(name, MOST_NAME);
	const known = results[name];
	if (name === "" || known !== undefined && BADNESS[known.status] >= BADNESS[status]) return;
	if (known === undefined) ran++;
	results[name] = record({ test: name, status });
	if (failure !== undefined && messages++ < MOST_MESSAGES) results[name].message = cut(said(failure), MOST_MESSAGE);
}

// cut is the beginning of a text that has at most so many bytes, and no half of a letter.
function cut(text, most) {
	let short = bytesOf(text).subarray(0, most).toString();
	while (bytesOf(short).length > most) short = short.slice(0, -1);
	return short;
}

function said(failure) {
	try {
		return String(failure?.message || failure);
	} catch {
		return "";
	}
}

// finish says that all tests have run: a process that ends before that has not come to its end.
function finish() {
	if (finished) return;
	finished = true;
	for (const name in results) send(results[name]);
	send(record({ ran }));
}

send(record({ begin: "node" }));
on("exit", () => {
	if (finished) send(record({ end: true }));
});

// claim gives the test program what reports, and nobody after it.
function claim() {
	if (claimed) throw new Error("the reporter is taken");
	claimed = true;
	return { note, finish };
}

const JEST = record({ passed: "PASSED", failed: "FAILED", pending: "SKIPPED", skipped: "SKIPPED", todo: "SKIPPED", disabled: "SKIPPED" });

// Reporter is Mocha's, which prints as its "spec" does, and Jest's.
class Reporter {
	#report = claim();
	#spec;

	constructor(runner, options) {
		if (typeof runner?.on !== "function") return; // Jest's
		const { note, finish } = this.#report;
		const { Spec } = createRequire(folder + "/")("mocha").reporters;
		this.#spec = new Spec(runner, options);
		const titles = (test) => (typeof test.titlePath === "function" ? test.titlePath() : [test.fullTitle()]).filter((title) => title !== "");
		runner.on("pass", (test) => note(titles(test), "PASSED"));
		runner.on("pending", (test) => note(titles(test), "SKIPPED"));
		runner.on("fail", (test, failure) => note(titles(test), test.type === "hook" ? "ERROR" : "FAILED", failure));
		runner.on("end", finish);
	}

	done(failures, end) {
		if (typeof this.#spec?.done === "function") this.#spec.done(failures, end);
		else end(failures);
	}

	onRunComplete(_, all) {
		const { note, finish } = this.#report;
		for (const file of all.testResults) {
			for (const test of file.testResults) note([...test.ancestorTitles, test.title], JEST[test.status] || "ERROR", test.failureMessages[0]);
			if (file.testExecError) note([file.testFilePath], "ERROR", file.testExecError);
		}
		finish();
	}
}

module.exports = Reporter;
module.exports.claim = claim;
