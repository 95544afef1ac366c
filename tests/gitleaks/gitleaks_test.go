// Package gitleaks holds redact/rules to gitleaks: the same rules, and the same findings.
package gitleaks

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lucasjones/reggen"
	"github.com/pelletier/go-toml/v2"
	"github.com/zricethezav/gitleaks/v8/cmd/generate/config/utils"
	"github.com/zricethezav/gitleaks/v8/config"
	"github.com/zricethezav/gitleaks/v8/detect"

	"github.com/rondo-rl/rondo/redact/rules"
)

var rewrite = flag.Bool("rewrite", false, "write the rules, their licence and the recorded findings of redact/rules")

// here is the folder of the package that is compared.
const here = "../../redact/rules"

func moduleDir(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/zricethezav/gitleaks/v8").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestRulesAreThose compares the files of gitleaks that are kept in redact/rules
// with those of its module.
func TestRulesAreThose(t *testing.T) {
	for from, to := range map[string]string{"config/gitleaks.toml": "gitleaks.toml", "LICENSE": "LICENSE"} {
		want, err := os.ReadFile(filepath.Join(moduleDir(t), from))
		if err != nil {
			t.Fatal(err)
		}
		same(t, filepath.Join(here, to), want)
	}
}

// TestFindings compares the findings in the texts that gitleaks tests its own rules with, and in
// texts made from the expressions of its rules, and records them for the tests of redact/rules.
func TestFindings(t *testing.T) {
	d := detector(t)
	var recorded []record
	byRule := map[string]int{}
	for _, text := range append(literals(t), generated(t, d)...) {
		r := record{text, gitleaks(d, text)}
		for _, f := range r.Found {
			byRule[f[0]]++
		}
		compare(t, r)
		recorded = append(recorded, r)
	}
	for id, rule := range d.Config.Rules {
		if rule.Path == nil && byRule[id] == 0 {
			t.Errorf("the rule %s finds nothing in %d texts", id, len(recorded))
		}
	}
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	for _, r := range recorded {
		if err := lines.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	same(t, filepath.Join(here, "testdata", "findings.json.gz"), out.Bytes())
	t.Logf("%d texts, findings of %d rules", len(recorded), len(byRule))
}

// record is a text and, as rule and secret, what gitleaks finds in it.
type record struct {
	Text  string
	Found [][2]string
}

// TestFindingsInRandomTexts joins parts of those texts, with line breaks and
// assignments between them.
func TestFindingsInRandomTexts(t *testing.T) {
	d := detector(t)
	parts := append(literals(t), generated(t, d)...)
	random := rand.New(rand.NewPCG(1, 1))
	found := 0
	for range 5000 {
		r := record{Text: mixed(random, parts)}
		r.Found = gitleaks(d, r.Text)
		compare(t, r)
		if len(r.Found) > 0 {
			found++
		}
	}
	if found < 500 {
		t.Errorf("only %d texts have findings", found)
	}
}

func FuzzFindings(f *testing.F) {
	d := detector(f)
	f.Add("password = 'Q7rT2mV9kL4pW8sX3bN6'\r\nkey: x")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) <= 16<<10 {
			compare(t, record{text, gitleaks(d, text)})
		}
	})
}

// mixed joins parts, or pieces of them.
func mixed(random *rand.Rand, parts []string) string {
	joints := []string{
		"", " ", "\n", "\r\n", "\"", "'", " = ", ": ", "=", "token=", "api_key: ", "--mount=type=secret,",
		"\u017f", "\u212aey", "é", "\t", "import { a } from 'b'", "key",
	}
	var b strings.Builder
	for range 1 + random.IntN(6) {
		part := parts[random.IntN(len(parts))]
		part = part[:min(len(part), 2000)]
		if random.IntN(3) == 0 && part != "" {
			at := random.IntN(len(part))
			part = part[at:min(len(part), at+1+random.IntN(80))]
		}
		b.WriteString(part + joints[random.IntN(len(joints))])
	}
	return b.String()
}

func detector(t testing.TB) *detect.Detector {
	t.Helper()
	var settings config.ViperConfig
	if err := toml.Unmarshal([]byte(config.DefaultConfig), &settings); err != nil {
		t.Fatal(err)
	}
	all, err := settings.Translate()
	if err != nil {
		t.Fatal(err)
	}
	d := detect.NewDetector(all)
	d.IgnoreGitleaksAllow = true
	return d
}

func gitleaks(d *detect.Detector, text string) [][2]string {
	found := [][2]string{}
	for _, f := range d.DetectString(text) {
		found = append(found, [2]string{f.RuleID, cmp.Or(f.Secret, f.Match)})
	}
	return sorted(found)
}

func compare(t *testing.T, r record) {
	t.Helper()
	set, err := rules.Default()
	if err != nil {
		t.Fatal(err)
	}
	found := [][2]string{}
	for _, f := range set.Find(r.Text) {
		found = append(found, [2]string{f.Rule, f.Secret})
	}
	if sorted(found); !slices.Equal(found, r.Found) {
		t.Errorf("in %q found %q, gitleaks %q", r.Text, found, r.Found)
	}
}

func sorted(found [][2]string) [][2]string {
	slices.SortFunc(found, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	return found
}

// edges are texts at the edges of allowlists: the ends of lines, and flags of one
// expression that reach the next.
var edges = []string{
	"token=Q7rT2mV9kL4pW8sX3bN6 --mount=type=secret,\nnext",
	"token=Q7rT2mV9kL4pW8sX3bN6 --mount=type=secret\n,next",
	"a\ntoken=Q7rT2mV9kL4pW8sX3bN6 --mount=type=secret,",
	"--mount=type=secret,\na\ntoken=Q7rT2mV9kL4pW8sX3bN6",
	"--mount=type=secret,\na\ntoken=Q7rT2mV9kL4pW8sX3bN6\nb",
	"token=Q7rT2mV9kL4pW8sX3bN6\r--mount=type=secret,",
	"a\ntoken=Q7rT2mV9kL4pW8sX3bN6\r--mount=type=secret,",
	"curl -u name:$SomeWord7 https://a.b",
	"curl -u 'name:$SomeWord' https://a.b",
	"curl -u 'name:${Some_Word}' https://a.b",
	"curl -u 'name:%Some_Word%' https://a.b",
	"curl -u 'name:$SOME_WORD' https://a.b",
	"curl -H 'Authorization: Bearer $SomeWord' https://a.b",
	"curl -H 'Authorization: Token ${Some_Word}' https://a.b",
	"curl -H 'X-Api-Key: $Some_Word' https://a.b",
	"curl -H \"X-Api-Key: {{ Some.Word }}\" https://a.b",
}

// literals are the strings in the source of gitleaks's rules and tests, among them the rules'
// true and false positives.
func literals(t testing.TB) (all []string) {
	t.Helper()
	var files []string
	for _, pattern := range []string{"cmd/generate/config/rules/*.go", "detect/*_test.go", "config/*_test.go"} {
		matches, err := filepath.Glob(filepath.Join(moduleDir(t), pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, matches...)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				text, err := strconv.Unquote(l.Value)
				if err != nil {
					t.Fatal(err)
				}
				if filepath.Base(name) != "stopwords.go" {
					all = append(all, strings.ToValidUTF8(text, "?")) // as JSON holds it
				}
			}
			return true
		})
	}
	all = append(all, edges...)
	slices.Sort(all)
	if all = slices.Compact(all); len(all) < 2000 {
		t.Fatalf("only %d strings are in the source of gitleaks", len(all))
	}
	return all
}

// generated are texts that the expressions of the rules match, alone and in the surroundings that
// gitleaks gives to secrets.
func generated(t testing.TB, d *detect.Detector) (all []string) {
	t.Helper()
	for _, id := range d.Config.OrderedRules {
		rule := d.Config.Rules[id]
		if rule.Regex == nil {
			continue
		}
		generator, err := reggen.NewGenerator(rule.Regex.String())
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		generator.SetSeed(1)
		for i := range 3 {
			text := strings.ToValidUTF8(generator.Generate(40), "?")
			all = append(all, text, fmt.Sprintf("before\n%s\nbehind", text))
			groups := rule.Regex.FindStringSubmatch(text)
			if i == 0 && len(groups) > 1 {
				// The last group of an expression is the secret.
				samples := utils.GenerateSampleSecrets(rule.Keywords[0], groups[len(groups)-1])
				slices.Sort(samples)
				all = append(all, samples...)
			}
		}
	}
	return all
}

// same compares a file, unpacked, with what it should hold, or writes it.
func same(t *testing.T, path string, want []byte) {
	t.Helper()
	packed := strings.HasSuffix(path, ".gz")
	if *rewrite {
		if packed {
			var out bytes.Buffer
			w := gzip.NewWriter(&out)
			if _, err := w.Write(want); err != nil || w.Close() != nil {
				t.Fatal(err)
			}
			want = out.Bytes()
		}
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err == nil && packed {
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(got)); err == nil {
			got, err = io.ReadAll(r)
		}
	}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what gitleaks gives (%v): go test -rewrite writes it", path, err)
	}
}
