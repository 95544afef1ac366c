package readme

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkKubernetes checks a command of docs/guide/kubernetes.md that needs a cluster: the chart and
// the script are there, and what runs in the pod of the command line exists. tests/helm renders the
// chart and runs the script.
func checkKubernetes(t *testing.T, args []string) {
	t.Helper()
	switch {
	case args[0] == "helm" && args[1] == "uninstall":
		if !slices.Equal(args[2:], []string{"rondo", "--namespace", "rondo"}) {
			t.Error("the command takes another release away than the one that is installed")
		}
	case args[0] == "helm":
		if !slices.Contains([]string{"dependency update", "install rondo", "upgrade rondo"},
			strings.Join(args[1:3], " ")) {
			t.Errorf("nothing says what helm %s does", args[1])
		}
		i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "deploy/") })
		if i < 0 {
			t.Error("the command names no chart")
		} else if _, err := os.Stat(filepath.Join(root, args[i], "Chart.yaml")); err != nil {
			t.Error(err)
		}
	case args[0] == "deploy/helm/secrets":
		if info, err := os.Stat(filepath.Join(root, args[0])); err != nil || info.Mode()&0o111 == 0 ||
			len(args) < 4 || args[3] != "|" {
			t.Errorf("%v: two arguments go into a pipe", err)
		}
	case args[1] == "exec":
		i := slices.Index(args, "--")
		if i < 0 || args[i+1] != "rondo" || !slices.Contains(args, "deploy/rondo-admin") {
			t.Error("the command runs nothing of Rondo")
			return
		}
		if _, err := command(root, rondo, append(args[i+2:], "--help")...); err != nil {
			t.Error(err)
		}
	case args[1] == "create" || args[1] == "label":
		if args[2] != "namespace" || args[3] != "rondo" {
			t.Errorf("kubectl %s is about another namespace than the others", args[1])
		}
	default:
		t.Errorf("nothing checks kubectl %s", args[1])
	}
}
