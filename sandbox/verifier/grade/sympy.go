package grade

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	sympyFile = regexp.MustCompile(`^(\S+)\[(\d+|\?)\](?: +Failed to import +\[FAIL\])?$`)
	sympyTest = regexp.MustCompile(`^(test\w*) (.*)$`)
	sympyMark = regexp.MustCompile(`(?:^|\s)(ok|[fXFETswK]) *(?:\[(?:OK|FAIL)\])?$`)
	sympySaid = regexp.MustCompile(`^_+ (?:.+:)?(\S+) _+$`)
	sympyEnd  = regexp.MustCompile(`(?s)tests finished: (.{1,400}?), *\s?in [\d.]+ seconds`)
	sympyTold = regexp.MustCompile(`(\d{1,6}) (passed|failed|skipped|expected to fail but passed|exceptions)`)
)

var sympyStatus = map[string]Status{
	"ok": Passed, "f": XFailed, "X": Failed, "F": Failed, "E": Failed, "T": Failed, "s": Skipped,
	"w": Skipped, "K": Skipped,
	"passed": Passed, "failed": Failed, "exceptions": Failed, "skipped": Skipped, "expected to fail but passed": Failed,
}

// readSymPy reads what SymPy's bin/test --verbose prints. Its tests are named by their functions
// alone, as in the lists of SWE-bench.
func readSymPy(output string) (Report, error) {
	ends := sympyEnd.FindAllStringSubmatch(output, -1)
	if len(ends) > 1 {
		return Report{}, fmt.Errorf("%w: the tests are summed up %d times", ErrImitated, len(ends))
	}
	report, seen, name := Report{Results: Results{}}, counts{}, ""
	var about speech
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, " \r\n")
		if m := sympySaid.FindStringSubmatch(line); m != nil {
			about.begin(&report, m[1])
		} else if strings.HasPrefix(line, "____") || strings.Contains(line, " tests finished: ") {
			about.end(&report)
		} else if line != "" && line[0] != ' ' {
			about.text.Reset() // the lines before are the way to it
			about.add(line)
		}
		if m := sympyFile.FindStringSubmatch(line); m != nil {
			name = ""
			if m[2] == "?" { // it could not be imported
				seen.note(report.Results, Failed, m[1])
			}
			continue
		}
		if m := sympyTest.FindStringSubmatch(line + " "); m != nil && name == "" {
			name, line = m[1], strings.TrimRight(m[2], " ")
		}
		// A test's own output comes behind its name, and its mark behind that.
		if m := sympyMark.FindStringSubmatch(line); m != nil && name != "" {
			seen.note(report.Results, sympyStatus[m[1]], name)
			name = ""
		}
	}
	if len(ends) == 1 {
		told := counts{}
		for _, m := range sympyTold.FindAllStringSubmatch(ends[0][1], -1) {
			told[sympyStatus[m[2]]] += number(m[1])
		}
		report.Complete = seen.equal(told)
	}
	report.Ran = len(report.Results) > 0
	return report, nil
}
