package grade

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// JUnit is the parser of a report in JUnit's XML, which many test programs write. It lies at
// JUnitFile in the folder of the reward.
const (
	JUnit     = "junit"
	JUnitFile = "junit.xml"
)

// maxNested bounds how deep a report's elements are nested.
const maxNested = 64

// ReadJUnit reads a report in JUnit's XML: the suites of one document, which may be nested, and
// their cases. A case has its name as its name, and with that of its class: "class.name". A
// document type is refused, and with it every entity. A suite that holds cases and no suites must
// hold as many as it says.
func ReadJUnit(data []byte) (Report, error) {
	if len(data) > MaxReport {
		return Report{}, fmt.Errorf("%w: a report of %d bytes, the limit is %d", ErrNoEvidence, len(data), MaxReport)
	}
	j := &junit{decoder: xml.NewDecoder(bytes.NewReader(data)), report: Report{Results: Results{}, Complete: true}}
	err := j.document()
	if err != nil {
		return Report{}, fmt.Errorf("%w: %s: %w", ErrNoEvidence, JUnitFile, err)
	}
	return j.report, nil
}

// junit reads one document.
type junit struct {
	decoder *xml.Decoder
	report  Report
	nested  int
	text    []byte // the beginning of what stands in the element that said reads
}

func (j *junit) document() error {
	roots := 0
	for {
		token, err := j.decoder.Token()
		if errors.Is(err, io.EOF) && roots == 1 {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.Directive:
			return errors.New("a document type is refused")
		case xml.StartElement:
			if roots++; roots > 1 || t.Name.Local != "testsuites" && t.Name.Local != "testsuite" {
				return fmt.Errorf("<%.100s> is not the one <testsuites> or <testsuite>", t.Name.Local)
			}
			if err := j.suite(t); err != nil {
				return err
			}
		}
	}
}

// suite reads what is in a suite. The report is whole only if a suite without others in it has
// as many cases as it says.
func (j *junit) suite(start xml.StartElement) error {
	if j.nested++; j.nested > maxNested {
		return fmt.Errorf("more than %d elements around each other", maxNested)
	}
	defer func() { j.nested-- }()
	suites, cases := 0, 0
	err := j.children(func(child xml.StartElement) error {
		switch child.Name.Local {
		case "testsuite":
			suites++
			return j.suite(child)
		case "testcase":
			cases++
			return j.testcase(child)
		}
		return j.skip()
	})
	if told, ok := attribute(start, "tests"); ok && suites == 0 && start.Name.Local == "testsuite" {
		n, numberErr := strconv.Atoi(told)
		j.report.Complete = j.report.Complete && numberErr == nil && n == cases
	}
	return err
}

// endings are the elements of a case that did not pass.
var endings = map[string]Status{"failure": Failed, "error": Errored, "skipped": Skipped, "ignored": Skipped,
	"disabled": Skipped, "incomplete": Skipped, "pending": Skipped}

// outcomes are the words of a case's attributes status and result. GoogleTest and CTest say by them
// alone that a case did not run.
var outcomes = map[string]Status{
	"": Passed, "run": Passed, "completed": Passed, "complete": Passed, "passed": Passed, "pass": Passed, "ok": Passed,
	"success": Passed, "successful": Passed,
	"notrun": Skipped, "suppressed": Skipped, "skipped": Skipped, "skip": Skipped, "ignored": Skipped,
	"disabled": Skipped, "pending": Skipped, "excluded": Skipped,
	"untested": Skipped, "fail": Failed, "failed": Failed, "failure": Failed, "error": Errored, "errored": Errored,
	"broken": Errored, "aborted": Errored,
	"interrupted": Errored, "timeout": Errored, "timedout": Errored, "timed_out": Errored,
	"panicked": Errored, "undefined": Errored,
}

// testcase reads a case. A word that nobody knows is an error where no element
// says how the case ended.
func (j *junit) testcase(start xml.StartElement) error {
	status, unknown := Passed, error(nil)
	for _, name := range []string{"status", "result"} {
		word, _ := attribute(start, name)
		said, known := outcomes[strings.ToLower(word)]
		if !known {
			unknown = fmt.Errorf("a case has the %s %.40q, and nobody knows whether it passed", name, word)
		}
		if badness[said] > badness[status] {
			status = said
		}
	}
	var message string
	err := j.children(func(child xml.StartElement) error {
		ending := endings[child.Name.Local]
		if badness[ending] > badness[status] {
			status = ending
		}
		said, err := j.readMessage(child)
		if badness[ending] >= badness[Failed] {
			message = cmp.Or(message, said)
		}
		return err
	})
	if status == Passed {
		err = cmp.Or(err, unknown)
	}
	if err != nil {
		return err
	}
	j.report.Ran = true
	name, _ := attribute(start, "name")
	class, _ := attribute(start, "classname")
	if name == "" || len(class)+1+len(name) > maxName {
		j.report.Complete = false
		return nil
	}
	j.report.Results.add(name, status)
	j.report.say(message, name)
	if class != "" {
		j.report.Results.add(class+"."+name, status)
		j.report.say(message, class+"."+name)
	}
	return nil
}

// readMessage reads an element to its end, and answers its message, or else
// the beginning of its text.
func (j *junit) readMessage(start xml.StartElement) (string, error) {
	message, _ := attribute(start, "message")
	j.text = j.text[:0]
	err := j.skip()
	return cmp.Or(strings.TrimSpace(message), strings.TrimSpace(string(j.text))), err
}

// children visits the elements in the one whose start was read last, up to its end. A visit
// reads its element to the end.
func (j *junit) children(visit func(xml.StartElement) error) error {
	for {
		token, err := j.decoder.Token()
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.Directive:
			return errors.New("a document type is refused")
		case xml.EndElement:
			return nil
		case xml.CharData:
			j.text = append(j.text, t[:min(len(t), max(0, maxSaid-len(j.text)))]...)
		case xml.StartElement:
			if err := visit(t); err != nil {
				return err
			}
		}
	}
}

// skip reads to the end of an element whatever is in it.
func (j *junit) skip() error {
	if j.nested++; j.nested > maxNested {
		return fmt.Errorf("more than %d elements around each other", maxNested)
	}
	defer func() { j.nested-- }()
	return j.children(func(xml.StartElement) error { return j.skip() })
}

func attribute(of xml.StartElement, name string) (string, bool) {
	for _, a := range of.Attr {
		if a.Name.Local == name && a.Name.Space == "" {
			return a.Value, true
		}
	}
	return "", false
}
