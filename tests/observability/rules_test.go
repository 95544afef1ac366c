package observability_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const folder = "../../deploy/observability/"

// chart has the rules and the dashboard, since Helm reads nothing outside of a chart.
const chart = "../../deploy/helm/rondo/files/"

// rule is an alert.
type rule struct {
	Alert string
	Expr  string
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	text, err := os.ReadFile(chart + "rules.yml")
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// TestRules: promtool takes the rules, and each alert fires and stays silent as its tests say. Each
// has a test, and a line in the guide.
func TestRules(t *testing.T) {
	t.Parallel()
	needPromtool(t)
	for _, args := range [][]string{{"check", "rules", "../helm/rondo/files/rules.yml"},
		{"test", "rules", "rules_test.yml"}, {"check", "config", "--syntax-only", "prometheus.yml"}} {
		command := exec.Command("promtool", args...)
		command.Dir = folder
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	tests, err := os.ReadFile(folder + "rules_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/guide/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	all := rules(t)
	if len(all) < 9 {
		t.Errorf("%d alerts", len(all))
	}
	for _, r := range all {
		if !strings.Contains(string(tests), "alertname: "+r.Alert+"\n") {
			t.Errorf("%s has no test", r.Alert)
		}
		if !strings.Contains(string(guide), "| `"+r.Alert+"` |") {
			t.Errorf("the guide does not explain %s", r.Alert)
		}
	}
}

// TestNamedMetricsExist: what alerts and panels ask for is defined in the code, with
// the labels that they use.
func TestNamedMetricsExist(t *testing.T) {
	t.Parallel()
	all := defined(t)
	named := 0
	check := func(where, expression string) {
		for _, m := range regexp.MustCompile(`rondo_[a-z_]+`).FindAllString(expression, -1) {
			named++
			plain := m
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if cut, ok := strings.CutSuffix(m, suffix); ok && all[cut].kind == "histogram" {
					plain = cut
				}
			}
			if all[plain].name == "" || all[plain].kind == "histogram" && plain == m {
				t.Errorf("%s asks for %s, which nothing defines", where, m)
			}
		}
	}
	for _, r := range rules(t) {
		check(r.Alert, r.Expr)
	}
	text, err := os.ReadFile(chart + "rondo.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct{ List []struct{ Query string } }
		Panels     []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	var expressions []string
	for _, v := range board.Templating.List {
		check("a variable", v.Query)
	}
	for _, p := range board.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			check(p.Title, target.Expr)
			expressions = append(expressions, target.Expr)
		}
	}
	wellFormed(t, expressions)
	if len(board.Panels) < 15 || named < 40 {
		t.Errorf("%d panels, %d names of metrics", len(board.Panels), named)
	}
}

// wellFormed has promtool read expressions, as those of rules.
func wellFormed(t *testing.T, expressions []string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		return // TestRules says so
	}
	var list []any
	for i, e := range expressions {
		list = append(list, map[string]any{"record": fmt.Sprint("panel:", i),
			"expr": strings.ReplaceAll(e, "$run", "x")})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": list}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "panels.yml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
