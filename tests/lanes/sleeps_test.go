package lanes

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// sleeps are the calls of time.Sleep that are left in test files without virtual time of their own,
// and why. A new test waits for a signal, sleeps in virtual time (testing/synctest,
// natstest.Virtual) or polls (natstest.Eventually, program.Eventually).
var sleeps = map[string]struct {
	calls int
	why   string
}{
	"events/embedded/crash_test.go":          {1, "it polls below natstest, which imports the package"},
	"events/embedded/refusing_linux_test.go": {1, "it polls below natstest, which imports the package"},
	"events/eventlog/race_test.go":           {1, "the pace at which leaders are changed"},
	"events/eventlog/seen_test.go": {1,
		"readers wait for a leader that is behind, and nothing tells that they do"},
	"health/health_linux_test.go": {1, "it polls, and prints the log at last"},
	"index/merkle/walk_test.go":   {1, "the file system's clock ticks"},
	"pipeline/fairness_test.go":   {1, "it polls for what need not come"},
	"sandbox/lifecycle_linux_test.go": {1,
		"it polls without a server in the binary, which starts in each sandbox"},
	"sandbox/limits_linux_test.go":          {1, "the pace of a program that takes memory"},
	"sandbox/memory_linux_test.go":          {1, "the pace of a program that takes memory"},
	"sandbox/toolserver/main_test.go":       {2, "programs that hang"},
	"services/generator/share_test.go":      {1, "what a turn takes"},
	"storage/projection/room_linux_test.go": {2, "a disk fills up or empties, and nothing tells"},
	"storage/s3/keys_test.go":               {1, "it polls below natstest, which imports the package"},
	"tests/auth/outsiders_test.go":          {1, "answers that must not come"},
	"tests/blast/plane_test.go":             {1, "its callers are in virtual time"},
	"tests/compose/stack_test.go":           {1, "it polls containers for minutes"},
	"tests/faults/plane_linux_test.go":      {1, "a process that faults happen to"},
	"tests/faults/virtual_test.go":          {2, "its callers are in virtual time"},
	"tests/gateway/forward_linux_test.go":   {1, "what a turn takes, so that kills find requests at any moment"},
	"tests/outsiders/outsiders_test.go":     {1, "a race about a deadline"},
	"tests/power/blocks_linux_test.go":      {2, "the interval between two syncs"},
	"tests/providers/providers_test.go":     {1, "a client does as Retry-After says"},
	"tests/providers/server_test.go":        {1, "a server that is away"},
	"tests/schedules/trainer_test.go":       {1, "its callers are in virtual time"},
	"tests/torch/torch_test.go":             {1, "it polls for ten minutes"},
}

var (
	sleep   = regexp.MustCompile(`\btime\.Sleep\(`)
	virtual = regexp.MustCompile(`\b(synctest\.Test|natstest\.Virtual)\(`)
)

// sleepsIn counts the calls of a test file, or 0 where it has virtual time.
func sleepsIn(text string) int {
	if virtual.MatchString(text) {
		return 0
	}
	return len(sleep.FindAllString(text, -1))
}

// TestNoNewSleeps: a test that sleeps for real is slow on an idle machine, and fails on a busy one.
func TestNoNewSleeps(t *testing.T) {
	files := 0
	for _, name := range lines(t, "git", "ls-files", "--cached", "--others", "--exclude-standard", "*_test.go") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and still in the index
		}
		if err != nil {
			t.Fatal(err)
		}
		files++
		if n := sleepsIn(string(text)); n != sleeps[name].calls {
			t.Errorf("%s calls time.Sleep %d times, and the list has %d: wait for a signal, sleep in virtual time, or poll with natstest.Eventually",
				name, n, sleeps[name].calls)
		}
	}
	if files < 500 {
		t.Errorf("%d test files were looked at", files)
	}
	for name := range sleeps {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("the list has a file that is gone: %v", err)
		}
	}
}

func TestSleepsAreCounted(t *testing.T) {
	for text, want := range map[string]int{
		"time.Sleep(1)\nretry.Sleep(ctx, 1)\nmytime.Sleep(2)\n":                   1,
		"for ; ; time.Sleep(1) {\n\ttime.Sleep(2)\n}\n":                           2,
		"natstest.Virtual(t, func(t *testing.T) {\n\ttime.Sleep(time.Hour)\n})\n": 0,
		"synctest.Test(t, func(t *testing.T) {\n\ttime.Sleep(time.Hour)\n})\n":    0,
	} {
		if got := sleepsIn(text); got != want {
			t.Errorf("%d sleeps, want %d, in\n%s", got, want, text)
		}
	}
}
