package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/cli/clitest"
)

// TestConfigInit: the file that is written says what it should as a comment, and each of its lines
// is a setting that `up` or `service` takes as it stands.
func TestConfigInit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rondo.yaml")
	if out, err := clitest.RunProgram(t, New(), "config", "init", file); err != nil {
		t.Fatal(err, out)
	}
	if _, err := clitest.RunProgram(t, New(), "config", "init", file); err == nil ||
		!strings.Contains(err.Error(), "is there already") {
		t.Errorf("it writes over a file: %v", err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := clitest.RunProgram(t, New(), "version", "--config", file); err != nil {
		t.Error("as it is written:", err, out)
	}
	for _, part := range []string{
		"# where the built-in policy listens (of `rondo service`: 127.0.0.1:8700)\n# policy-listen: 127.0.0.1:0\n",
		"finds the built-in policy (`rondo service` alone)\n# builtin-endpoint: ",
		"# directory of the embedded plane: log, objects, state\n# dir: ",
	} {
		if !strings.Contains(string(written), part) {
			t.Errorf("it does not say %q:\n%s", part, written)
		}
	}
	setting := regexp.MustCompile(`(?m)^# ([a-z-]+): (.*)$`)
	names := map[string]bool{}
	for _, m := range setting.FindAllStringSubmatch(string(written), -1) {
		names[m[1]] = true
	}
	filled := setting.ReplaceAllStringFunc(string(written), func(line string) string {
		if strings.HasSuffix(line, `: ""`) || strings.HasPrefix(line, "# dir:") {
			return line
		}
		return strings.TrimPrefix(line, "# ")
	})
	clitest.Write(t, file, filled)
	for _, noun := range []string{"up", "service"} {
		root := New()
		cmd, _, err := root.Find([]string{noun})
		if err != nil {
			t.Fatal(err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !names[f.Name] {
				t.Errorf("--%s of %s is no setting of the file", f.Name, noun)
			}
		})
		cmd.RunE, cmd.Args = nil, nil // the settings alone are tried
		cmd.Run = func(*cobra.Command, []string) {}
		if out, err := clitest.RunProgram(t, root, noun, "--config", file); err != nil {
			t.Errorf("%s: %v\n%s", noun, err, out)
		}
	}
}
