package commits

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tasks"
	"github.com/rondo-rl/rondo/tasks/swebench"
)

// token is a secret by the rules of redact.
const token = "gh" + "p_9fK2mQ7xLc4VtB8nRz5WyH3jPd6GsA1eUo0X"

// Files of users.
const (
	began     = "def take(stock, item, n):\n    stock[item] -= n\n    return True\n"
	attempted = "def take(stock, item, n):\n    if n < 0:\n        return False\n    stock[item] -= n\n    return True\n"
	mended    = "def take(stock, item, n):\n    if stock[item] < n:\n        return False\n    stock[item] -= n\n    return True\n"
	wish      = "Refuse to take more of an item than there is. My token is " + token + ", if you need one."
)

func pyTest(name, body string) string {
	return "import unittest\nfrom stock import take\n\n\nclass Test" + name + "(unittest.TestCase):\n    def test_" +
		name + "(self):\n" + body + "\n"
}

// user states what a session leaves on the log.
type user struct {
	t                *testing.T
	log              *eventlog.Log
	visits, appended int
}

func (u *user) append(typ events.Type, entity string, data any) {
	u.t.Helper()
	u.appended++
	servicetest.Append(u.t, u.log, servicetest.Event(u.t, "r", typ, entity, fmt.Sprint(u.appended), data))
}

func (u *user) pack(files map[string]string) storage.Ref {
	return servicetest.Blob(u.t, u.log.Store(), sandboxtest.Pack(u.t, files))
}

// visit is a query with the agent's answer and the user's final files; nil for none.
type visit struct {
	query, wish  string
	dissents     bool
	began, agent map[string]string
	final        map[string]string
	broken       *storage.Ref // in place of the final files
}

func (u *user) visit(v visit) (rollout string) {
	u.t.Helper()
	u.visits++
	group := fmt.Sprintf("g%06d", u.visits)
	rollout = group + "-0"
	query := events.QuerySubmitted{Instruction: v.wish, Task: "a", Consent: !v.dissents,
		Repository: &events.UserRepository{Archive: u.pack(v.began)}}
	u.append(events.QuerySubmittedType, v.query, query)
	u.append(events.RolloutStartedType, rollout, events.RolloutStarted{Group: group, Task: v.query, Seed: 1,
		Deadline: time.Now().Add(time.Hour)})
	if v.agent != nil {
		left := u.pack(v.agent)
		u.append(events.RolloutFinishedType, rollout, events.RolloutFinished{StopReason: "finished",
			Turns: 1, Workspace: &left})
	}
	feedback := events.FeedbackRecorded{Signal: events.SignalReject}
	if v.final != nil {
		feedback.Repository = &events.UserRepository{Archive: u.pack(v.final)}
	}
	if v.broken != nil {
		feedback.Repository = &events.UserRepository{Archive: *v.broken}
	}
	u.append(events.FeedbackRecordedType, rollout, feedback)
	return rollout
}

func with(files map[string]string, more ...string) map[string]string {
	all := maps.Clone(files)
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// TestImportSessions: a query becomes a task if its user has agreed and changed what the agent
// left, and a test shows it. All others are dropped with their reasons. No secret reaches the task,
// and it goes when its rollout is invalidated.
func TestImportSessions(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	u := &user{t: t, log: log}
	before := map[string]string{
		"stock.py": began, "settings.cfg": "token = " + token + "\n",
		"old/odd \"name\"é.txt": "kept\n", "old/git~1": "kept\n",
		"test_stock.py": pyTest("take",
			"        s = {'bolt': 3}\n        self.assertTrue(take(s, 'bolt', 2))\n        self.assertEqual(s['bolt'], 1)"),
	}
	tested := pyTest("many",
		"        s = {'bolt': 1}\n        self.assertFalse(take(s, 'bolt', 2))\n        self.assertEqual(s['bolt'], 1)")
	after := with(before, "stock.py", mended, "test_many.py", tested, "__pycache__/stock.cpython-311.pyc", "\x00\x01")
	tried := map[string]string{"stock.py": attempted, "__pycache__/stock.cpython-311.pyc": "\x00\x02"}
	garbage, lost := servicetest.Blob(t, log.Store(), []byte("PK")), u.pack(after)
	lost.SHA256 = strings.Repeat("0", 64)
	lost.Key = storage.BlobKey(lost.SHA256)

	want := map[string]string{}
	say := func(reason string, v visit) string {
		want["r/"+v.query] = reason
		if v.wish == "" {
			v.wish = wish
		}
		if v.began == nil {
			v.began = before
		}
		return u.visit(v)
	}
	say(Duplicate, visit{query: "qtwin", agent: tried, final: after})
	taken := say("", visit{query: "qtask", agent: tried, final: after})
	say(NoConsent, visit{query: "qdissent", dissents: true, agent: tried, final: after})
	say(NoFinal, visit{query: "qsilent", agent: tried})
	say(NoAnswer, visit{query: "qopen", final: after})
	gone := say(Withdrawal, visit{query: "qgone", agent: tried, final: after})
	u.append(events.RolloutInvalidatedType, gone, events.RolloutInvalidated{Reason: "the user withdrew"})
	say(AgentPasses, visit{query: "qright", agent: map[string]string{"stock.py": mended + "\n\nMOST = 3\n"},
		final: after})
	say(AgentUntried, visit{query: "qmute", agent: map[string]string{"stock.py": "import os\n\nos._exit(0)\n"},
		final: after})
	say(NoCorrection, visit{query: "qkept", agent: with(after, "node_modules/x.js", "1"), final: after})
	say(NoChange, visit{query: "qundone", agent: tried, final: before})
	say(MessageFix, visit{query: "qtold", wish: "Please write this into it: if stock[item] < n: and nothing else",
		agent: tried, final: after})
	say(NoTests, visit{query: "quntested", agent: tried, final: with(before, "stock.py", mended)})
	say(PassesBefore, visit{query: "qvague", agent: tried,
		final: with(before, "stock.py", mended, "test_more.py",
			strings.ReplaceAll(before["test_stock.py"], "take(self", "more(self"))})
	say(LostFiles, visit{query: "qlost", agent: tried, broken: &lost})
	say(UnreadableFiles, visit{query: "qgarbage", agent: tried, broken: &garbage})
	say(SecretName, visit{query: "qnamed", agent: tried, final: with(after, token+".txt", "")})

	got, ran := map[string]string{}, 0
	o := Options{Dir: filepath.Join(t.TempDir(), "tasks"), Jobs: 1, Timeout: 10 * time.Minute,
		Machine: tasks.Machine{ToolchainCache: t.TempDir()}}
	o.Progress = func(id string, outcome Outcome, tests bool, err error) {
		if err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if got[id] = outcome.Reason; tests {
			ran++
		}
	}
	report, err := ImportSessions(t.Context(), o, log.Reader, "r")
	if err != nil {
		t.Fatal(err)
	}
	for id, reason := range want {
		if outcome, there := got[id]; !there || outcome != reason {
			t.Errorf("%s: %q, want %q", id, outcome, reason)
		}
	}
	if !slices.Equal(report.Tasks, []string{"r.qtask"}) || report.Found != len(want) || report.Left != 0 || ran != 4 {
		t.Fatalf("%d ran: %+v", ran, report)
	}
	state, err := readState(report.State)
	if err != nil || state.Commits["r/qtask"].Masked != 2 { // in the query and in a file
		t.Errorf("%+v: %v", state.Commits["r/qtask"], err)
	}
	folder := filepath.Join(o.Dir, "r.qtask")
	checkSessionTask(t, folder)

	ran = 0
	if report, err = ImportSessions(t.Context(), o, log.Reader, "r"); err != nil || ran != 0 || len(report.Tasks) != 1 {
		t.Errorf("again: %d ran: %+v: %v", ran, report, err)
	}
	u.append(events.RolloutInvalidatedType, taken, events.RolloutInvalidated{Reason: "the user withdrew"})
	report, err = ImportSessions(t.Context(), o, log.Reader, "r")
	if err != nil || !slices.Equal(report.Tasks, []string{"r.qtwin"}) || report.Dropped[Withdrawal] != 2 {
		t.Errorf("withdrawn: %+v: %v", report, err)
	}
	if _, err := os.Lstat(folder); err == nil {
		t.Error("the task of a user who withdrew is still there")
	}
}

// checkSessionTask looks at what an agent and the tests get.
func checkSessionTask(t *testing.T, folder string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if strings.Contains(string(text), token) || strings.Contains(name, "__pycache__") {
			t.Errorf("%s holds what it must not", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, part := range map[string]string{
		"instruction.md":                         "more of an item than there is. My token is [redacted: github-pat]",
		"environment/repo/stock.py":              "stock[item] -= n",
		"environment/repo/settings.cfg":          "token = [redacted: github-pat]",
		"environment/repo/old/odd \"name\"é.txt": "kept",
		"environment/repo/old/git~1":             "kept",
		"tests/test.patch":                       "test_many",
		"solution/gold.patch":                    "+    if stock[item] < n:",
	} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || !strings.Contains(string(text), part) {
			t.Errorf("%s: %v: %q, want %q in it", name, err, text, part)
		}
	}
	for _, name := range []string{"environment/repo/test_many.py", "environment/repo/.git"} {
		if _, err := os.Lstat(filepath.Join(folder, name)); err == nil {
			t.Errorf("the agent gets %s", name)
		}
	}
}

// TestNewerFinalFiles: the last final files of a query count, with the answer that they are made
// of; a snapshot of the run's task is what a query without a repository begins with.
func TestNewerFinalFiles(t *testing.T) {
	log := natstest.Log(t)
	cfg := servicetest.Config("a")
	servicetest.OpenRun(t, log, "r", cfg)
	u := &user{t: t, log: log}
	before := map[string]string{"a.txt": "a"}
	rollout := u.visit(visit{query: "q1", wish: wish, began: before, agent: map[string]string{}, final: before})
	newer := u.pack(map[string]string{"a.txt": "b"})
	u.append(events.FeedbackRecordedType, rollout, events.FeedbackRecorded{Signal: events.SignalFollow,
		Repository: &events.UserRepository{Archive: newer}})
	u.append(events.FeedbackRecordedType, rollout, events.FeedbackRecorded{Signal: events.SignalAccept})
	u.append(events.QuerySubmittedType, "q2", events.QuerySubmitted{Instruction: wish, Task: "a", Consent: true})
	found, err := sessionsOf(t.Context(), log.Reader, "r")
	if err != nil || len(found.list) != 2 {
		t.Fatalf("%+v: %v", found, err)
	}
	if one, two := found.list[0], found.list[1]; *one.final != newer || one.refusal() != "" ||
		two.began != cfg.Tasks[0].Snapshot || two.refusal() != NoFinal {
		t.Errorf("%+v, %+v", one, two)
	}
}

// TestSessionTaskNames are apart and names of tasks, whatever the run and the query are called.
func TestSessionTaskNames(t *testing.T) {
	long := strings.Repeat("x", 64)
	seen := map[string]bool{}
	for _, c := range [][2]string{{"a", "q1"}, {"a-q1", "q2"}, {"a", "q1-q2"}, {long, "q" + long[:63]},
		{long, "q" + long[:62] + "y"}, {"_", "q"}, {"-", "q"}} {
		name := sessionTask(c[0], c[1])
		if seen[name] || len(name) > 100 {
			t.Errorf("%v: %q", c, name)
		}
		seen[name] = true
	}
}

// TestSlowSearch: files that cannot be searched in time drop the query, and an interrupt does not.
func TestSlowSearch(t *testing.T) {
	m := newMasker()
	if err := m.search(t.Context(), "token = "+token); err != nil {
		t.Fatal(err)
	}
	if data, err := m.mask(t.Context(), []byte("token = "+token)); err != nil ||
		string(data) != "token = [redacted: github-pat]" || m.left >= maxSearch {
		t.Errorf("%q, %v left: %v", data, m.left, err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := m.mask(stopped, []byte("other")); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupt: %v", err)
	}
	m.left = 0
	if refused, ok := errors.AsType[*refusedTree](second(m.mask(t.Context(), []byte("other")))); !ok ||
		refused.reason != SlowSearch {
		t.Errorf("without time: %v", refused)
	}
}

func second[T any](_ T, err error) error { return err }

// importing are the options of an import whose queries are decided without a sandbox, and the
// outcomes that it tells of.
func importing(t *testing.T, dir string) (o Options, got map[string]Outcome) {
	t.Helper()
	got = map[string]Outcome{}
	o = Options{Dir: dir, Jobs: 1, Timeout: time.Minute}
	o.Progress = func(id string, outcome Outcome, _ bool, err error) {
		if err != nil {
			t.Errorf("%s: %v", id, err)
		}
		got[id] = outcome
	}
	return o, got
}

// openUser makes a run of users.
func openUser(t *testing.T) *user {
	t.Helper()
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	return &user{t: t, log: log}
}

// TestRelativeFolder: Git, which runs in another folder, finds a folder of tasks that is named from
// this one.
func TestRelativeFolder(t *testing.T) {
	u := openUser(t)
	before := map[string]string{"a.txt": "a"}
	u.visit(visit{query: "q1", wish: "Do it.", began: before, agent: map[string]string{"a.txt": "b"}, final: before})
	t.Chdir(t.TempDir())
	o, got := importing(t, filepath.Join(".", "my-tasks"))
	report, err := ImportSessions(t.Context(), o, u.log.Reader, "r")
	if err != nil || got["r/q1"].Reason != NoChange || report.Dropped[NoChange] != 1 {
		t.Errorf("%+v, %+v: %v", got, report, err)
	}
}

// archiveOf is a packed tree of whatever somebody has put into it.
func archiveOf(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var packed bytes.Buffer
	out := tar.NewWriter(&packed)
	for _, e := range entries {
		if err := out.WriteHeader(&e); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// TestOddNames: names of files that no machine need have drop the query, and are told to nobody.
// Those of folders that are left out do not count.
func TestOddNames(t *testing.T) {
	u := openUser(t)
	want := map[string]string{}
	for i, name := range []string{"a\xff", "\xff/a", strings.Repeat("n", 256),
		strings.Repeat(strings.Repeat("d", 200)+"/", 11) + "a", "node_modules/\xff", ""} {
		e := tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Format: tar.FormatPAX}
		if name == "" {
			e.Name, e.Typeflag, e.Linkname = "link", tar.TypeSymlink, strings.Repeat("x/", 2048)
		}
		if !utf8.ValidString(e.Name) {
			e.Format = tar.FormatGNU
		}
		id := fmt.Sprint("q", i)
		want["r/"+id] = OddNames
		if strings.HasPrefix(name, "node_modules") {
			want["r/"+id] = NoChange
		}
		final := servicetest.Blob(t, u.log.Store(), archiveOf(t, e))
		u.visit(visit{query: id, wish: "Do it.", agent: map[string]string{"a": "1"}, broken: &final})
	}
	o, got := importing(t, t.TempDir())
	if _, err := ImportSessions(t.Context(), o, u.log.Reader, "r"); err != nil {
		t.Error(err)
	}
	for id, reason := range want {
		detail := got[id].Detail
		if got[id].Reason != reason || strings.Contains(detail, "\xff") || strings.Contains(detail, "?") {
			t.Errorf("%s: %+v, want %s", id, got[id], reason)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	w := &treeWriter{store: u.log.Store(), mask: newMasker()}
	ref := u.pack(map[string]string{"a": "1"})
	if _, err := w.unpacked(stopped, &ref, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupt: %v", err)
	}
}

// TestSecretsOfOtherFiles: what a text shows to be a secret is masked in all three trees and in the
// query, also where nothing shows it, and no name of a file holds it.
func TestSecretsOfOtherFiles(t *testing.T) {
	const bare = "kT9vXz2LqW8mRb4NcY7sHd1PfJ6gEu3A"
	shown := "api_" + "secret = \"" + bare + "\"\n"
	log := natstest.Log(t)
	u := &user{t: t, log: log}
	commits := func(query string, began, agent, final map[string]string) (*swebench.Objects, [3]string, error) {
		objects, err := swebench.Create(filepath.Join(t.TempDir(), "repository"))
		if err != nil {
			t.Fatal(err)
		}
		left, last := u.pack(agent), u.pack(final)
		w := &treeWriter{objects: objects, store: log.Store(), mask: newMasker()}
		s := &session{wish: query, began: u.pack(began), final: &last, judged: &answer{left: &left}}
		a, b, c, err := w.ofSession(t.Context(), s)
		return objects, [3]string{a.id, b.id, c.id}, err
	}
	objects, ids, err := commits("Use "+bare+".", map[string]string{"a.txt": "see " + bare},
		map[string]string{"a.txt": "try " + bare}, map[string]string{"a.txt": "say " + bare, "b.cfg": shown})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		var text []byte
		err := objects.Git(t.Context(), nil, func(out io.Reader) (err error) {
			text, err = readAll(out, maxPatch)
			return err
		}, "show", "--root", "--format=%B", id)
		if err != nil || strings.Contains(string(text), bare) || !strings.Contains(string(text), "[redacted: ") {
			t.Errorf("%v: %s", err, text)
		}
	}
	_, _, err = commits("Do it.", map[string]string{bare: ""}, nil, map[string]string{"b.cfg": shown})
	if refused, ok := errors.AsType[*refusedTree](err); !ok || refused.reason != SecretName {
		t.Errorf("the name of a file: %v", err)
	}
}

// TestAgentUntried: an answer that cannot be tried is not one that fails, and one without a change
// of code is.
func TestAgentUntried(t *testing.T) {
	u := openUser(t)
	before := map[string]string{"stock.py": began}
	for name, c := range map[string]struct {
		agent  map[string]string
		reason string
	}{
		"nothing":          {nil, ""},
		"a test":           {map[string]string{"test_a.py": "\x00"}, ""},
		"a binary file":    {map[string]string{"stock.py": mended, "stock.bin": "\x00"}, AgentUntried},
		"a name":           {map[string]string{"stock.py": mended, "my stock.py": "1"}, AgentUntried},
		"too many bytes":   {map[string]string{"stock.py": strings.Repeat("\n", 2<<20+1)}, AgentUntried},
		"too many entries": {folderOf(2000), AgentUntried},
	} {
		objects, err := swebench.Create(filepath.Join(t.TempDir(), "repository"))
		if err != nil {
			t.Fatal(err)
		}
		left, last := u.pack(c.agent), u.pack(map[string]string{"stock.py": mended})
		w := &treeWriter{objects: objects, store: u.log.Store(), mask: newMasker()}
		s := &session{wish: "Do it.", began: u.pack(before), final: &last, judged: &answer{left: &left}}
		first, agent, final, err := w.ofSession(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		m := &maker{objects: objects}
		outcome, err := m.tryAgent(t.Context(), commit{id: final.id, parent: first.id, agent: agent.id},
			swebench.Instance{}, parts{parser: "pytest"}, t.TempDir())
		if err != nil || outcome.Reason != c.reason {
			t.Errorf("%s: %+v: %v, want %q", name, outcome, err, c.reason)
		}
	}
	slow, err := untried(Outcome{Reason: Slow, Limit: 60}, nil)
	im := importer{maker: maker{Options: Options{Timeout: time.Minute}},
		state: state{Commits: map[string]Outcome{"a": slow}}}
	if err != nil || slow.Reason != AgentUntried || !im.isDecided(commit{id: "a"}) {
		t.Errorf("%+v: %v", slow, err)
	}
	if im.Timeout++; im.isDecided(commit{id: "a"}) {
		t.Error("an answer that took too long is not tried again with more time")
	}
}

// folderOf is a folder with so many files.
func folderOf(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("%s/%d", strings.Repeat("f", 250), i)] = ""
	}
	return files
}

// TestArchivedSessions: the queries of a run whose stream is gone are read from its archive.
func TestArchivedSessions(t *testing.T) {
	u := openUser(t)
	before := map[string]string{"a.txt": "a"}
	u.visit(visit{query: "q1", wish: "Do it.", began: before, agent: map[string]string{"a.txt": "b"}, final: before})
	if _, err := u.log.Appender.Seal(t.Context(), "r", true); err != nil {
		t.Fatal(err)
	}
	if err := u.log.Streams.DeleteRun(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	fresh, err := eventlog.New(u.log.JetStream().Conn(), u.log.Store()) // remembers no event
	if err != nil {
		t.Fatal(err)
	}
	o, got := importing(t, t.TempDir())
	if _, err := ImportSessions(t.Context(), o, fresh.Reader, "r"); err != nil || got["r/q1"].Reason != NoChange {
		t.Errorf("%+v: %v", got, err)
	}
}

// TestLaterFiles: a query whose user hands in other files is looked at again, and its task goes;
// the same files stay decided. What a killed import was making goes, too.
func TestLaterFiles(t *testing.T) {
	u := openUser(t)
	before, after := map[string]string{"a.txt": "a"}, map[string]string{"a.txt": "c"}
	rollout := u.visit(visit{query: "q1", wish: "Do it.", began: before, agent: map[string]string{"a.txt": "b"},
		final: before})
	o, got := importing(t, t.TempDir())
	task, half := filepath.Join(o.Dir, "r.q1"), filepath.Join(o.Dir, making+"1/repository")
	for _, want := range []string{NoChange, "", Prose} {
		if err := errors.Join(os.MkdirAll(task, 0o755), os.MkdirAll(half, 0o755)); err != nil {
			t.Fatal(err)
		}
		if want == Prose {
			u.append(events.FeedbackRecordedType, rollout, events.FeedbackRecorded{Signal: events.SignalFollow,
				Repository: &events.UserRepository{Archive: u.pack(after)}})
		}
		clear(got)
		if _, err := ImportSessions(t.Context(), o, u.log.Reader, "r"); err != nil || got["r/q1"].Reason != want {
			t.Errorf("%+v: %v, want %q", got, err, want)
		}
		if _, err := os.Lstat(task); (err == nil) != (want == "") {
			t.Errorf("%q: its task: %v", want, err)
		}
		if _, err := os.Lstat(filepath.Dir(half)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what was half made: %v", err)
		}
	}
}

// TestWithdrawalMeanwhile: no task comes of a query whose rollout is invalidated while tests run.
func TestWithdrawalMeanwhile(t *testing.T) {
	u := openUser(t)
	before := map[string]string{"a.txt": "a"}
	rollout := u.visit(visit{query: "q1", wish: "Do it.", began: before, agent: before, final: before})
	read, err := sessionsOf(t.Context(), u.log.Reader, "r")
	if err != nil {
		t.Fatal(err)
	}
	o, _ := importing(t, t.TempDir())
	im := &importer{maker: maker{Options: o}, file: SessionsFile, state: state{Commits: map[string]Outcome{}}}
	c := commit{id: "r/q1", task: "r.q1"}
	r := &sessionImporter{im, read, map[string]session{c.id: *read.list[0]}}
	im.objection = r.withdrawn
	done := func() Outcome {
		folder := filepath.Join(t.TempDir(), "last")
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		im.note(t.Context(), c, Outcome{Task: c.task, folder: folder}, nil)
		return im.state.Commits[c.id]
	}
	if outcome := done(); outcome.Task != c.task || !im.there(c.task) {
		t.Fatalf("%+v", outcome)
	}
	if err := os.RemoveAll(filepath.Join(o.Dir, c.task)); err != nil {
		t.Fatal(err)
	}
	u.append(events.RolloutInvalidatedType, rollout, events.RolloutInvalidated{Reason: "the user withdrew"})
	if outcome := done(); outcome.Reason != Withdrawal || im.there(c.task) {
		t.Errorf("%+v", outcome)
	}
}
