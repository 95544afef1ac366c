// Reports which tests ran, over a descriptor that the verifier opened: those of mocha and jest, whose reporter this is, and of node's own test runner, by node-test.mjs.
//
// Loaded before everything else (node --require), it takes its nonce and what it needs of node before any code of the workspace can change it. Of mocha that code runs in
// the same process and can forge what is reported: canaries show that it does. node closes the descriptor for everything that it starts.
"use strict";

const { fstatSync, readSync, writeSync } = require("fs");
const { createRequire } = require("module");
const { stringify } = JSON, alloc = Buffer.from, on = process.on.bind(process), cwd = process.cwd();
const CHANNEL = 9, MOST_NAME = 2000, MOST_MESSAGE = 400, MOST_MESSAGES = 200;

let nonce = "";
try {
	const bytes = Buffer.alloc(33);
	if (fstatSync(CHANNEL).isSocket() && readSync(CHANNEL, bytes, 0, 33) === 33 && bytes[32] === 10) nonce = bytes.toString("latin1", 0, 32);
} catch {
	// there is no channel
}

function send(record) {
	if (nonce === "") return;
	const line = alloc(nonce + " " + stringify(record) + "\n");
	for (let sent = 0; sent < line.length; ) sent += writeSync(CHANNEL, line, sent);
}

const ORDER = ["PASSED", "XFAIL", "SKIPPED", "FAILED", "ERROR"];
const results = new Map();
let messages = 0, finished = false;

// note notes how a test ended. Of two tests of one name the worse one counts.
function note(titles, status, failure) {
	const name = cut(titles.join(" > "), MOST_NAME);
	const known = results.get(name);
	if (name === "" || known && ORDER.indexOf(known.status) >= ORDER.indexOf(status)) return;
	const one = { test: name, status };
	if (failure !== undefined && messages++ < MOST_MESSAGES) one.message = cut(said(failure), MOST_MESSAGE);
	results.set(name, one);
}

// cut is the beginning of a text that has at most so many bytes, and no half of a letter.
function cut(text, most) {
	let short = alloc(text).subarray(0, most).toString();
	while (alloc(short).length > most) short = short.slice(0, -1);
	return short;
}

function said(failure) {
	try {
		return String(failure && failure.message || failure);
	} catch {
		return "";
	}
}

// finish says that all tests have run: a process that ends before that has not come to its end.
function finish() {
	if (finished) return;
	finished = true;
	for (const one of results.values()) send(one);
	send({ ran: results.size });
}

send({ begin: "node" });
on("exit", () => {
	if (finished) send({ end: true });
});

// Mocha's reporter, which prints as its "spec" does. A test of mocha that has failed can be followed by others of its name, as it may be tried again.
function Reporter(runner, options) {
	if (!(this instanceof Reporter)) return new Reporter(runner, options);
	if (!runner || typeof runner.on !== "function") return; // jest's
	const { Spec } = createRequire(cwd + "/")("mocha").reporters;
	this.spec = new Spec(runner, options);
	const titles = (test) => (typeof test.titlePath === "function" ? test.titlePath() : [test.fullTitle()]).filter((title) => title !== "");
	runner.on("pass", (test) => note(titles(test), "PASSED"));
	runner.on("pending", (test) => note(titles(test), "SKIPPED"));
	runner.on("fail", (test, failure) => note(titles(test), test.type === "hook" ? "ERROR" : "FAILED", failure));
	runner.on("end", finish);
}
Reporter.prototype.done = function (failures, end) {
	if (typeof this.spec?.done === "function") this.spec.done(failures, end);
	else end(failures);
};

// Jest's reporter.
const JEST = { passed: "PASSED", failed: "FAILED", pending: "SKIPPED", skipped: "SKIPPED", todo: "SKIPPED", disabled: "SKIPPED" };
Reporter.prototype.onRunComplete = function (_, all) {
	for (const file of all.testResults) {
		for (const test of file.testResults) note([...test.ancestorTitles, test.title], JEST[test.status] || "ERROR", test.failureMessages[0]);
		if (file.testExecError) note([file.testFilePath], "ERROR", file.testExecError);
	}
	finish();
};

module.exports = Reporter;
module.exports.channel = { note, finish };
