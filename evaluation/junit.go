package evaluation

import (
	"encoding/xml"
	"fmt"
	"io"
	"time"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr,omitempty"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure"`
	Error   *junitMessage `xml:"error"`
	Output  string        `xml:"system-out,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
}

// WriteJUnit writes the report for systems that show tests: a suite for each summary, a test case
// for each task. A task fails when none of its scored attempts passed, and is an error when none of
// its attempts could be scored.
func WriteJUnit(w io.Writer, r Report) error {
	all := junitSuites{Name: plain(r.Title, longestName)}
	for _, s := range r.Summaries {
		suite := s.junit()
		if !r.When.IsZero() {
			suite.Timestamp = r.When.UTC().Format(time.RFC3339)
		}
		all.Tests += suite.Tests
		all.Failures += suite.Failures
		all.Errors += suite.Errors
		all.Suites = append(all.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (s Summary) junit() junitSuite {
	suite := junitSuite{Name: plain(s.Name, longestName), Tests: len(s.ByTask)}
	var seconds float64
	for _, t := range s.ByTask {
		var took float64
		for _, a := range t.Attempts {
			took += a.Seconds
		}
		seconds += took
		c := junitCase{Class: suite.Name, Name: plain(t.Task, longestName), Time: fmt.Sprintf("%.3f", took)}
		result := fmt.Sprintf("%d of %d scored attempts passed (reward %g), mean reward %s", t.Passed, t.Scored,
			s.PassReward, part(t.Reward))
		if t.Failed > 0 {
			result += fmt.Sprintf("; %d more failed by the infrastructure's fault", t.Failed)
		}
		switch {
		case t.Scored == 0:
			suite.Errors++
			c.Error = &junitMessage{fmt.Sprintf("none of %s was scored: the infrastructure failed",
				counted(t.Failed, "attempt", "attempts")), "infrastructure"}
		case t.Passed == 0:
			suite.Failures++
			c.Failure = &junitMessage{result, "reward"}
		default:
			c.Output = result
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Time = fmt.Sprintf("%.3f", seconds)
	return suite
}
