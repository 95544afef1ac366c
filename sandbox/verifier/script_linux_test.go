package verifier_test

import (
	"errors"
	"os"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// scriptTests are tests of Node's own test program, with a reporter that writes JUnit's XML.
var scriptTests = map[string]string{
	"test.sh": `echo '` + grade.StartMark + `'
node --test --test-reporter=/tests/junit.mjs --test-reporter-destination=/logs/verifier/junit.xml /tests/slug.test.mjs
code=$?
echo
echo '` + grade.EndMark + `'
echo "` + grade.ExitMark + `$code"
`,
	"junit.mjs": `export default async function* (events) {
  yield '<testsuites><testsuite>'
  for await (const { type, data } of events)
    if ((type === 'test:pass' || type === 'test:fail') && !data.name.endsWith('.mjs'))
      yield '<testcase name="' + data.name + '">' + (type === 'test:fail' ? '<failure/>' : '') + '</testcase>'
  yield '</testsuite></testsuites>'
}
`,
	"slug.test.mjs": `import test from 'node:test'
import assert from 'node:assert'
import { slug } from '/app/slug.mjs'

test('joins words', () => {
  assert.strictEqual(slug('Two words'), 'two-words')
})

test('drops dashes at the ends', () => {
  assert.strictEqual(slug(' Other titles! '), 'other-titles')
})
`,
	grade.File: `{"parser": "junit", "fail_to_pass": ["drops dashes at the ends"], "pass_to_pass": ["joins words"]}`,
}

// TestScriptCanaries: the same as of Python holds of tests in JavaScript.
func TestScriptCanaries(t *testing.T) {
	sandboxtest.Require(t)
	if _, err := os.Stat("/usr/bin/node"); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatal("node is required by RONDO_REQUIRE_ALL=1")
		}
		t.Skip("node is missing")
	}
	const broken = "export const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, '-')\n"
	const fixed = "export const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '')\n"
	const old = "const old = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, '-')\n"
	for name, c := range map[string]struct {
		work   string
		reward float64
		class  string
	}{
		"the fix":      {fixed, 1, ""},
		"nothing done": {"\n" + broken, 0, ""},
		"compares nothing": {"import assert from 'node:assert'\nassert.strictEqual = () => {}\n" + broken, 0,
			verifier.ClassTampered},
		"reads what is expected": {"import fs from 'node:fs'\n" + old + `export const slug = (text) => {
  const found = fs.readFileSync('/tests/slug.test.mjs', 'utf8').split('\n').find(line => line.includes("'" + text + "'"))
  return found ? found.split("'")[3] : old(text)
}
`, 0, verifier.ClassTampered},
		"reads the line of its caller": {"import fs from 'node:fs'\n" + old + `export const slug = (text) => {
  const [, file, line] = new Error().stack.split('\n')[2].match(/file:\/\/(.*?):(\d+)/)
  return fs.readFileSync(file, 'utf8').split('\n')[line - 1].split("'")[3]
}
`, 0, verifier.ClassTampered},
		"swallows errors": {"process.on('uncaughtException', () => {})\nprocess.on('exit', () => { process.exitCode = 0 })\n" + broken, 0, ""},
		"leaves":          {"process.exit(0)\n" + broken, 0, ""},
		"tells of tests by itself": {`import v8 from 'node:v8'
const send = (name, n) => { const s = new v8.DefaultSerializer(); s.writeHeader(); s.writeValue({ type: 'test:pass', data: { name, nesting: 0, testNumber: n, details: { duration_ms: 1 } } })
  const body = s.releaseBuffer(), head = Buffer.alloc(6); head.writeUInt16BE(0xff0f, 0); head.writeUInt32BE(body.length, 2); process.stdout.write(Buffer.concat([head, body])) }
send('joins words', 1); send('drops dashes at the ends', 2); process.exit(0)
` + broken, 0, ""},
		"writes the report": {`import { spawn } from 'node:child_process'
const report = "<testsuites><testsuite><testcase name='joins words'/><testcase name='drops dashes at the ends'/></testsuite></testsuites>"
spawn('sh', ['-c', 'while :; do echo "' + report + '" >/logs/verifier/junit.xml; done'], { detached: true, stdio: 'ignore' }).unref()
` + broken, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := verifier.Spec{
				Name: "script", Snapshot: sandbox.Bytes(sandboxtest.Pack(t, map[string]string{"slug.mjs": broken})),
				Tests:     sandboxtest.Pack(t, scriptTests),
				Baselines: &verifier.Baselines{}, Key: name,
			}
			outcome, err := judged(t, spec, map[string]string{"slug.mjs": c.work})
			var failed *verifier.Error
			if errors.As(err, &failed); err != nil && (failed == nil || failed.Class == verifier.ClassSandbox) ||
				c.class != "" && (failed == nil || failed.Class != c.class) || c.reward > 0 && err != nil {
				t.Fatalf("%v, want %q; %+v", err, c.class, outcome)
			}
			if outcome.Reward != c.reward || err == nil && outcome.Verifier != verifier.InProcess {
				t.Errorf("%+v: %s", outcome, outcome.Log)
			}
		})
	}
}
