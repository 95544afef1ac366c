package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// linter checks files of some kinds.
type linter struct {
	extensions []string
	check      func(ctx context.Context, l *lint, files []string) error
}

var linters = []linter{
	{[]string{".go"}, gofmt},
	{[]string{".go"}, goVet},
	{[]string{".sh", ".bash"}, shellcheck},
	{[]string{".py"}, ruff},
	{[]string{".ts", ".tsx"}, tsc},
	{[]string{".js", ".mjs", ".cjs"}, nodeCheck},
}

// lintable are the extensions of all linters, without the dot.
func lintable() (list []string) {
	for _, kind := range linters {
		for _, extension := range kind.extensions {
			list = append(list, extension[1:])
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// fromHere makes names such that none is an option.
func fromHere(files []string) []string {
	named := make([]string, len(files))
	for i, name := range files {
		named[i] = "./" + name
	}
	return named
}

// located is file:line:column: message, as compilers write it, with an optional column.
var located = regexp.MustCompile(`^(vet: )?([^:\s][^:]*):(\d+)(?::(\d+))?: (.*)$`)

// lines reports what is said in the form of located, with the severity that is told for each.
func (l *lint) lines(dir, text string, severity func(prefix string) string) (found int) {
	for line := range strings.Lines(text) {
		m := located.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		found++
		l.report(dir, m[2], Diagnostic{Message: m[5], Range: Range{Start: position(m[3], m[4])},
			Severity: severity(m[1])})
	}
	return found
}

func position(line, column string) Position {
	l, _ := strconv.Atoi(line)
	c, _ := strconv.Atoi(column)
	return Position{l, c}
}

func always(severity string) func(string) string { return func(string) string { return severity } }

// gofmt finds what does not parse, and what is not formatted.
func gofmt(ctx context.Context, l *lint, files []string) error {
	result, reason, err := l.program(ctx, "", append([]string{"gofmt", "-d", "-e"}, fromHere(files)...)...)
	if err != nil || reason != "" {
		l.allUnchecked(files, reason)
		return err
	}
	l.lines("", string(result.Stderr), always(severityError))
	l.hunks(string(result.Stdout))
	return nil
}

var hunk = regexp.MustCompile(`^@@ -(\d+)`)

// hunks reports the first line of each place that a difference changes.
func (l *lint) hunks(difference string) {
	name, line := "", 0
	for text := range strings.Lines(difference) {
		switch m := hunk.FindStringSubmatch(text); {
		case strings.HasPrefix(text, "+++ "):
			name, line = strings.TrimSpace(text[4:]), 0
		case m != nil:
			line, _ = strconv.Atoi(m[1])
		case line == 0:
		case text[0] == ' ':
			line++
		default:
			l.report("", name, Diagnostic{Message: "gofmt would format this differently",
				Range: Range{Start: Position{Line: line}}, Severity: severityInfo})
			line = 0 // one for each place
		}
	}
}

// goVet checks the packages of files. What does not compile is told by it too.
func goVet(ctx context.Context, l *lint, files []string) error {
	byDir := map[string][]string{}
	var dirs []string
	for _, name := range files {
		dir := path.Dir(name)
		if byDir[dir] == nil {
			dirs = append(dirs, dir)
		}
		byDir[dir] = append(byDir[dir], name)
	}
	for _, dir := range dirs {
		result, reason, err := l.program(ctx, dir, "go", "vet", ".")
		if err != nil {
			return err
		}
		if reason == "" {
			said := l.lines(dir, string(result.Stderr), func(prefix string) string {
				if prefix != "" {
					return severityError // it could not be looked at
				}
				return severityWarning
			})
			if result.ExitCode != 0 && said == 0 {
				reason = "go vet: " + firstLine(result.Stderr)
			}
		}
		if reason != "" {
			l.allUnchecked(byDir[dir], reason)
		}
	}
	return nil
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if len(line) > maxLintMessage {
		line = line[:maxLintMessage]
	}
	return strings.ToValidUTF8(line, "\uFFFD")
}

// shellcheck checks shell scripts; where it is missing, a shell at least parses them.
func shellcheck(ctx context.Context, l *lint, files []string) error {
	result, reason, err := l.program(ctx, "", append([]string{"shellcheck", "-f", "json"}, fromHere(files)...)...)
	if err != nil {
		return err
	}
	if reason != "" {
		return l.parseShell(ctx, files, reason)
	}
	var remarks []struct {
		File, Level, Message             string
		Line, Column, EndLine, EndColumn int
		Code                             int
	}
	if err := json.Unmarshal(result.Stdout, &remarks); err != nil {
		l.allUnchecked(files, "shellcheck: "+firstLine(result.Stderr))
		return nil
	}
	levels := map[string]string{"error": severityError, "warning": severityWarning,
		"info": severityInfo, "style": severityHint}
	for _, r := range remarks {
		l.report("", r.File, Diagnostic{
			Message: fmt.Sprintf("SC%d: %s", r.Code, r.Message), Severity: levels[r.Level],
			Range: Range{Start: Position{r.Line, r.Column}, End: Position{r.EndLine, r.EndColumn}},
		})
	}
	return nil
}

var shellSyntax = regexp.MustCompile(`: (?:line )?(\d+): (.*)`)

func (l *lint) parseShell(ctx context.Context, files []string, missing string) error {
	for _, name := range files {
		result, reason, err := l.program(ctx, "", "bash", "-n", "./"+name)
		if err != nil {
			return err
		}
		if reason != "" {
			l.unchecked(name, missing+", and "+reason)
			continue
		}
		l.unchecked(name, missing+": only its syntax was checked, by bash")
		if m := shellSyntax.FindStringSubmatch(firstLine(result.Stderr)); m != nil && result.ExitCode != 0 {
			l.report("", name, Diagnostic{Message: m[2], Range: Range{Start: position(m[1], "")},
				Severity: severityError})
		}
	}
	return nil
}

// ruff checks Python; where it is missing, Python at least compiles the files.
func ruff(ctx context.Context, l *lint, files []string) error {
	result, reason, err := l.program(ctx, "", append([]string{"ruff", "check", "--no-cache", "--output-format", "json"},
		fromHere(files)...)...)
	if err != nil {
		return err
	}
	if reason != "" {
		return l.compilePython(ctx, files, reason)
	}
	var remarks []struct {
		Filename, Code, Message string
		Location                struct{ Row, Column int }
		End                     struct{ Row, Column int } `json:"end_location"`
	}
	if err := json.Unmarshal(result.Stdout, &remarks); err != nil {
		l.allUnchecked(files, "ruff: "+firstLine(result.Stderr))
		return nil
	}
	for _, r := range remarks {
		severity := severityWarning
		if r.Code == "" || r.Code == "invalid-syntax" {
			severity, r.Code = severityError, "invalid-syntax"
		}
		l.report("", r.Filename, Diagnostic{
			Message: r.Code + ": " + r.Message, Severity: severity,
			Range: Range{Start: Position{r.Location.Row, r.Location.Column}, End: Position{r.End.Row, r.End.Column}},
		})
	}
	return nil
}

// compiled writes a line of JSON for each file that Python does not take. Nothing is written to the
// workspace, as py_compile would.
const compiled = `import json, sys
for name in sys.argv[1:]:
    try:
        with open(name, "rb") as f:
            compile(f.read(), name, "exec")
    except (SyntaxError, ValueError) as e:
        print(json.dumps({"file": name, "line": getattr(e, "lineno", 0) or 0, "column": getattr(e, "offset", 0) or 0, "message": getattr(e, "msg", None) or str(e)}))
`

func (l *lint) compilePython(ctx context.Context, files []string, missing string) error {
	result, reason, err := l.program(ctx, "", append([]string{"python3", "-I", "-W", "ignore", "-c", compiled},
		fromHere(files)...)...)
	switch {
	case err != nil:
		return err
	case reason == "" && result.ExitCode != 0:
		reason = "python3: " + firstLine(result.Stderr)
	}
	if reason != "" {
		l.allUnchecked(files, missing+", and "+reason)
		return nil
	}
	l.allUnchecked(files, missing+": only the syntax was checked, by python3")
	for line := range strings.Lines(string(result.Stdout)) {
		var remark struct {
			File, Message string
			Line, Column  int
		}
		if json.Unmarshal([]byte(line), &remark) == nil {
			l.report("", remark.File, Diagnostic{Message: remark.Message,
				Range: Range{Start: Position{remark.Line, remark.Column}}, Severity: severityError})
		}
	}
	return nil
}

// typeScript is file(line,column): error TS1005: message.
var typeScript = regexp.MustCompile(`^(\S.*)\((\d+),(\d+)\): (error|warning) (TS\d+: .*)$`)

// tsc checks the whole project where there is one, with the compiler that the
// project has brought, if it has.
func tsc(ctx context.Context, l *lint, files []string) error {
	arguments := []string{"--noEmit", "--pretty", "false"}
	if _, err := l.sb.Stat(ctx, "tsconfig.json"); err != nil {
		arguments = append(append(arguments, "--skipLibCheck"), fromHere(files)...)
	}
	result, reason, err := l.program(ctx, "", append([]string{"./node_modules/.bin/tsc"}, arguments...)...)
	if err == nil && result.ExitCode == exitNotFound {
		result, reason, err = l.program(ctx, "", append([]string{"tsc"}, arguments...)...)
	}
	if err != nil || reason != "" {
		l.allUnchecked(files, reason)
		return err
	}
	said := 0
	for line := range strings.Lines(string(result.Stdout)) {
		m := typeScript.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		said++
		severity := severityError
		if m[4] == "warning" {
			severity = severityWarning
		}
		l.report("", m[1], Diagnostic{Message: m[5], Range: Range{Start: position(m[2], m[3])}, Severity: severity})
	}
	if result.ExitCode != 0 && said == 0 {
		l.allUnchecked(files, "tsc: "+firstLine(append(result.Stdout, result.Stderr...)))
	}
	return nil
}

var (
	nodePlace = regexp.MustCompile(`(?m)^(?:file://)?(\S.*):(\d+)$`)
	nodeError = regexp.MustCompile(`(?m)^(\w*Error: .*)$`)
)

// nodeCheck parses JavaScript.
func nodeCheck(ctx context.Context, l *lint, files []string) error {
	for _, name := range files {
		result, reason, err := l.program(ctx, "", "node", "--check", "./"+name)
		if err != nil {
			return err
		}
		if reason != "" {
			l.unchecked(name, reason)
			continue
		}
		place, message := nodePlace.FindStringSubmatch(string(result.Stderr)),
			nodeError.FindStringSubmatch(string(result.Stderr))
		if result.ExitCode == 0 {
			continue
		}
		if place == nil || message == nil {
			l.unchecked(name, "node: "+firstLine(result.Stderr))
			continue
		}
		l.report("", name, Diagnostic{Message: message[1], Range: Range{Start: position(place[2], "")},
			Severity: severityError})
	}
	return nil
}
