package evaluation

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// elements reads all of an XML document, which it must be, and returns how often each element,
// attribute and text stands there.
func elements(t *testing.T, document []byte) (names map[string]int, texts string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(document))
	names = map[string]int{}
	var text strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return names, text.String()
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			names[token.Name.Local]++
			for _, a := range token.Attr {
				names["@"+a.Name.Local]++
			}
		case xml.CharData:
			text.Write(token)
		}
	}
}

// TestHTML: the file is well-formed as XML is, loads nothing, runs nothing,
// and draws what there is.
func TestHTML(t *testing.T) {
	var b bytes.Buffer
	if err := WriteHTML(&b, report(t)); err != nil {
		t.Fatal(err)
	}
	names, text := elements(t, b.Bytes())
	if names["svg"] < 20 || names["polyline"] != 2 || names["polygon"] != 2 ||
		names["rect"] < 20 || names["details"] != 2 {
		t.Errorf("what is drawn: %v", names)
	}
	for _, want := range []string{"Evaluation of repair@4", "pass@8", "0.439 (0.280 to 0.633)", "task-011",
		"Off-policy value", "version 5: 0.604", "2026-11-22 02:30 UTC", "g000003-1"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, bad := range []string{"http://", "https://", "src=", "url(", "@import", "<link", "<script", "javascript:",
		"NaN", "Inf", "ZgotmplZ"} {
		if bytes.Contains(b.Bytes(), []byte(bad)) {
			t.Errorf("the page has %q", bad)
		}
	}
	if !bytes.Contains(b.Bytes(), []byte(`content="default-src 'none'; style-src 'unsafe-inline'"`)) {
		t.Error("the page may load things")
	}
}

// TestJUnit: tasks that nobody passed fail, tasks without a score are
// errors, and the counts add up.
func TestJUnit(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJUnit(&b, report(t)); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Suites   []struct {
			Name  string `xml:"name,attr"`
			Tests int    `xml:"tests,attr"`
			Cases []struct {
				Name    string `xml:"name,attr"`
				Failure *struct {
					Message string `xml:"message,attr"`
				} `xml:"failure"`
				Error *struct {
					Message string `xml:"message,attr"`
				} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Tests != 24 || got.Failures != 2 || got.Errors != 1 || len(got.Suites) != 2 {
		t.Errorf("%+v", got)
	}
	first, second := got.Suites[0].Cases, got.Suites[1].Cases
	if first[0].Failure == nil ||
		first[0].Failure.Message != "0 of 7 scored attempts passed (reward 1), mean reward 0.000; 1 more failed by the infrastructure's fault" ||
		first[0].Error != nil {
		t.Errorf("a task that failed: %+v", first[0])
	}
	if first[2].Failure != nil || first[2].Error != nil {
		t.Errorf("a task that passed: %+v", first[2])
	}
	if second[0].Error == nil ||
		second[0].Error.Message != "none of 8 attempts was scored: the infrastructure failed" ||
		second[0].Failure != nil {
		t.Errorf("a task that was never scored: %+v", second[0])
	}
}

// TestMarkdown: each table's rows have as many columns as its head.
func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	if err := WriteMarkdown(&b, report(t)); err != nil {
		t.Fatal(err)
	}
	columns := 0
	for line := range strings.SplitSeq(b.String(), "\n") {
		if n := strings.Count(line, "|"); n == 0 {
			columns = 0
		} else if columns == 0 {
			columns = n
		} else if n != columns {
			t.Errorf("%d columns instead of %d: %s", n-1, columns-1, line)
		}
	}
	for _, want := range []string{"# Evaluation of repair@4\n",
		"| pass@8 | 1.000 (0.692 to 1.000) | 0.909 (0.460 to 1.000) |", "## Comparison: `repair@4` and `repair@1`",
		"| `task-000` | 0 of 7 |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report does not say %q", want)
		}
	}
}

// TestReportsOfNothing: a report that lacks everything, or whose every
// attempt failed, is still one.
func TestReportsOfNothing(t *testing.T) {
	failed, err := Summarise("mine", []Attempt{{Rollout: "a", Task: "t", Failed: true}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Report{{}, {Title: "t", Summaries: []Summary{failed},
		Curve: []CurvePoint{failed.Point(1, "r", when)}}} {
		var h, m, j bytes.Buffer
		if err := errors.Join(WriteHTML(&h, r), WriteMarkdown(&m, r), WriteJUnit(&j, r)); err != nil {
			t.Fatal(err)
		}
		elements(t, h.Bytes())
		elements(t, j.Bytes())
		if bytes.Contains(m.Bytes(), []byte("0.000")) {
			t.Errorf("figures of nothing:\n%s", m.Bytes())
		}
	}
}

// TestLongTablesEnd: a report of many tasks says where the others are.
func TestLongTablesEnd(t *testing.T) {
	s, err := Summarise("mine", attempts(rand.New(rand.NewPCG(1, 1)), 2100, 1, func(int) float64 { return 0.5 }),
		Options{Resamples: 100})
	if err != nil {
		t.Fatal(err)
	}
	var h, m bytes.Buffer
	r := Report{Summaries: []Summary{s}}
	if err := errors.Join(WriteHTML(&h, r), WriteMarkdown(&m, r)); err != nil {
		t.Fatal(err)
	}
	if names, text := elements(t, h.Bytes()); names["tr"] > 2*htmlRows+30 ||
		!strings.Contains(text, "100 more are in the JSON report") {
		t.Errorf("%d rows", names["tr"])
	}
	if n := strings.Count(m.String(), "\n"); n > markdownRows+60 ||
		!strings.Contains(m.String(), "1900 more are in the JSON report") {
		t.Errorf("%d lines of Markdown", n)
	}
}

// TestReportJSON: the report comes back from JSON as it was.
func TestReportJSON(t *testing.T) {
	r := report(t)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(back)
	if err != nil || !bytes.Equal(again, text) {
		t.Errorf("%v\n%s\n%s", err, text, again)
	}
	if e, ok := back.Summaries[0].Pass(8); !ok || e != r.Summaries[0].PassAt[3].Estimate ||
		back.OffPolicy.Ordinary == nil {
		t.Errorf("pass@8: %+v", e)
	}
}
