package app

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/wording"
)

// prefix begins the names of all environment variables of Rondo.
const prefix = "RONDO_"

// variables are those that are no flag's: of the program and of the Python client, of compose.yaml,
// of programs that Rondo starts, and of the project's own tests.
var variables = strings.Fields(`
	RONDO_CONFIG RONDO_BINARY RONDO_PYTHON RONDO_ENDPOINT_API_KEY RONDO_DASHBOARD_TOKEN RONDO_GATEWAY RONDO_GATEWAY_KEY RONDO_EMBEDDINGS_KEY RONDO_EMBEDDINGS_KEY_FILE
	RONDO_BUCKET RONDO_DEMO_STEPS RONDO_HOST RONDO_MODEL RONDO_NATS_MEMORY RONDO_OUT RONDO_PUBLISH RONDO_RUNNER_CPUS RONDO_RUNNER_MEMORY RONDO_S3_MEMORY RONDO_SERVICE_MEMORY
	RONDO_TOOL_CALL_PARSER
	RONDO_POLICY RONDO_VERSION RONDO_WEIGHTS RONDO_PROMPT RONDO_TRANSCRIPT
	RONDO_REQUIRE_ALL RONDO_NIGHTLY RONDO_TIMES RONDO_REWRITE RONDO_DOCKER RONDO_IMAGES RONDO_CLUSTER_ROLLOUTS RONDO_EPISODES RONDO_FAIL RONDO_FAULTS_SEED RONDO_FAULTS_SEEDS
	RONDO_HARBOR RONDO_KILLS RONDO_LARGE_CHECKPOINT RONDO_LARGE_WORKSPACE RONDO_LONG_HISTORY RONDO_LONG_KILLS RONDO_NATS_CHART RONDO_PLANE_KILLS RONDO_PRIME_RL RONDO_RELEASE
	RONDO_RELOADER RONDO_SKYRL RONDO_TRACKER RONDO_UPGRADE_FROM RONDO_WHEEL_PLATFORM RONDO_WHEEL_PROGRAMS`)

// ofTests begins the names of variables with which tests start themselves again.
var ofTests = regexp.MustCompile(`^RONDO_(TEST|CI)_`)

// CheckVariables refuses an environment variable of Rondo's that nothing reads: a misspelt one
// would leave the default in place.
func CheckVariables(root *cobra.Command, environment []string) error {
	known := slices.Clone(variables)
	for _, name := range flagNames(root) {
		known = append(known, variableOf(name))
	}
	var endings []string
	for _, name := range known {
		endings = append(endings, strings.TrimPrefix(name, prefix))
	}
	for _, each := range environment {
		name, _, _ := strings.Cut(each, "=")
		if !strings.HasPrefix(name, prefix) || ofTests.MatchString(name) || slices.Contains(known, name) ||
			linked(name, environment) {
			continue
		}
		meant := ""
		if near := wording.Nearest(strings.TrimPrefix(name, prefix), endings); near != "" {
			meant = fmt.Sprintf(", did you mean %s?", prefix+near)
		}
		return fmt.Errorf("environment variable %.100s: nothing of Rondo reads it%s; unset it, or see the flags in `%s --help`",
			name, meant, root.Name())
	}
	return nil
}

// variableOf is the environment variable that sets a flag.
func variableOf(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// commands are all commands below one.
func commands(cmd *cobra.Command) (all []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		all = append(append(all, sub), commands(sub)...)
	}
	return all
}

var link = regexp.MustCompile(`^(RONDO(?:_.+?)?)_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)?)$`)

// linked reports whether Kubernetes has set the variable for a Service
// whose name begins with rondo.
func linked(name string, environment []string) bool {
	found := link.FindStringSubmatch(name)
	return found != nil && slices.ContainsFunc(environment,
		func(v string) bool { return strings.HasPrefix(v, found[1]+"_SERVICE_HOST=") })
}

// checkEmpty refuses the empty value of a flag that has none by default because its default follows
// from something else, which its help says: the empty value would be taken for that.
func checkEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		_, absent, says := strings.Cut(f.Usage, "(default: ")
		if !says || !f.Changed || err != nil || !emptyText(f.Value.String()) || !emptyText(f.DefValue) ||
			f.Value.Type() == "bool" {
			return
		}
		absent, _, _ = strings.Cut(absent, ")")
		err = fmt.Errorf("--%s %q: an empty value would not count; leave the flag out for %s", f.Name, f.Value, absent)
	})
	return err
}

// emptyText reports whether a flag's value is the zero one of its type.
func emptyText(value string) bool {
	return slices.Contains([]string{"", "0", "0s", "[]"}, value)
}
