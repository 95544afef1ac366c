package grade

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Status is how a test ended.
type Status string

// The statuses, from good to bad.
const (
	Passed  Status = "PASSED"
	XFailed Status = "XFAIL" // it failed as it was expected to
	Skipped Status = "SKIPPED"
	Failed  Status = "FAILED"
	Errored Status = "ERROR"
)

var badness = map[Status]int{Passed: 1, XFailed: 2, Skipped: 3, Failed: 4, Errored: 5}

// Bounds of a report.
const (
	MaxReport = 32 << 20 // bytes
	maxTests  = 200_000
	maxName   = 2000 // bytes
	maxSaid   = 500  // bytes of a message
)

var (
	// ErrNoEvidence says that nothing shows that the tests ran.
	ErrNoEvidence = errors.New("nothing shows that the tests ran")
	// ErrImitated says that the code under test wrote marks or records of its own.
	ErrImitated = errors.New("the code under test imitates the test program")
	// ErrEndedEarly says that the test program ended with success before it had run its tests.
	ErrEndedEarly = errors.New("the process of the tests ended early, and said that all is well")
)

// Results are tests and how they ended.
type Results map[string]Status

// add notes a status. The worse of two counts.
func (r Results) add(name string, status Status) {
	if badness[status] > badness[r[name]] && (len(r) < maxTests || r[name] != "") {
		r[name] = status
	}
}

// failures reports whether any test failed.
func (r Results) failures() bool {
	for _, status := range r {
		if status == Failed || status == Errored {
			return true
		}
	}
	return false
}

// Report is what the processes of a test program reported.
type Report struct {
	Results Results
	// Said is the beginning of what the program says of tests that failed. It is for people: code
	// under test can have written it.
	Said map[string]string
	// Complete: each process that reported came to its end. Ran: at least one test ran.
	Complete, Ran bool
}

// say notes what a program says of a test, by each of its names. What it says first counts.
func (r *Report) say(text string, names ...string) {
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	if r.Said == nil {
		r.Said = map[string]string{}
	}
	for _, name := range names {
		if len(r.Said) < maxTests && r.Said[name] == "" {
			r.Said[name] = text[:min(len(text), maxSaid)]
		}
	}
}

// record is one line of a report: a process begins, ran a test, ended a run
// of so many tests, or ends.
type record struct {
	Begin   string `json:"begin"`
	Test    string `json:"test"`
	Status  Status `json:"status"`
	Message string `json:"message"` // of a test that failed
	Ran     int    `json:"ran"`
	End     bool   `json:"end"`
}

// process is the state of one process that reports.
type process struct{ begun, ended bool }

// ReadReport reads what came over the channel: lines of a nonce, which says whose line it is, a
// space, and a record as JSON. Each of the nonces was given to one process. A line that no process
// can have written is ErrImitated.
func ReadReport(data []byte, nonces []string) (Report, error) {
	processes := make(map[string]*process, len(nonces))
	for _, nonce := range nonces {
		processes[nonce] = &process{}
	}
	report := Report{Results: Results{}, Complete: true}
	for line := range bytes.Lines(data) {
		if err := report.take(line, processes); err != nil {
			return Report{}, err
		}
	}
	for _, p := range processes {
		report.Complete = report.Complete && p.begun == p.ended
	}
	return report, nil
}

func (r *Report) take(line []byte, processes map[string]*process) error {
	nonce, text, _ := bytes.Cut(line, []byte(" "))
	p := processes[string(nonce)]
	var one record
	if p == nil || json.Unmarshal(text, &one) != nil || (one.Begin != "") == p.begun || p.ended {
		return fmt.Errorf("%w: a line of the report is not from the test program", ErrImitated)
	}
	switch {
	case one.Begin != "":
		p.begun = true
	case one.End:
		p.ended = true
	case one.Test != "":
		if len(one.Test) > maxName || badness[one.Status] == 0 {
			return fmt.Errorf("%w: a record of the report is not from the test program", ErrImitated)
		}
		r.Results.add(one.Test, one.Status)
		r.say(one.Message, one.Test)
		// Lists of SWE-bench end a name at its first space.
		if fields := strings.Fields(one.Test); len(fields) > 1 && strings.Contains(fields[0], "::") {
			r.Results.add(fields[0], one.Status)
			r.say(one.Message, fields[0])
		}
	case one.Ran > 0:
		r.Ran = true
	}
	return nil
}
