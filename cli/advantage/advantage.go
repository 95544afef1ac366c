// Package advantage is the command that computes advantages of rewards as JSON.
package advantage

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/events/runfile"
)

// New makes the command `rondo advantage`.
func New(g *app.Global) *cobra.Command {
	var estimator, preset string
	var params []string
	var list bool
	cmd := &cobra.Command{
		Use:   "advantage (--estimator NAME | --preset NAME) [--param k=v]… < rewards.json",
		Short: "Turn groups of rewards into advantages, as a run would",
		Long: `Advantage reads groups of rewards from the standard input and prints their advantages, by the same code that a run
uses. Both are JSON: {"groups": [[1, 0, null], [0.5, 1]]}; null is a member that failed: it has no advantage and
counts in nobody's mean.

Estimators that look at a whole batch (reinforce_plus_plus and its baseline variant) normalise over all groups that
are given. They weigh rollouts by their sampled tokens: "tokens": [[…], …] beside "groups" tells them, else all
count alike. rae takes all groups as those of one task, in their order.`,
		Example: `  echo '{"groups":[[1,1,1,0,0,0,0,0]]}' | rondo advantage --preset verl
  rondo advantage --estimator std_normalised --param ddof=0 --param eps=1e-8 < rewards.json
  echo '{"groups":[[1,0],[0,null]],"tokens":[[120,80],[95,0]]}' | rondo advantage --estimator reinforce_plus_plus
  rondo advantage --list`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				return listEstimators(cmd.OutOrStdout(), g)
			}
			e, err := chosenEstimator(estimator, preset, params)
			if err != nil {
				return err
			}
			rewards, err := readRewards(cmd.InOrStdin())
			if err != nil {
				return err
			}
			return app.PrintJSON(cmd.OutOrStdout(), map[string]any{"groups": rewards.Advantages(e)})
		},
	}
	cmd.Flags().StringVar(&estimator, "estimator", "", "name of the estimator: "+strings.Join(advantage.Names(), ", "))
	cmd.Flags().StringVar(&preset, "preset", "", "the estimator of another system: "+
		strings.Join(advantage.Presets(), ", "))
	cmd.Flags().StringArrayVar(&params, "param", nil, "parameter of the estimator, as name=value; may be repeated")
	cmd.Flags().BoolVar(&list, "list", false, "list the estimators with formulas and parameters, and the presets")
	return cmd
}

func chosenEstimator(estimator, preset string, params []string) (advantage.Estimator, error) {
	a := runfile.Advantage{Estimator: estimator, Preset: preset, Params: map[string]any{}}
	for _, p := range params {
		name, text, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return advantage.Estimator{}, fmt.Errorf("--param %q: write name=value, for example eps=1e-6", p)
		}
		if _, twice := a.Params[name]; twice {
			return advantage.Estimator{}, fmt.Errorf("--param %s: it is given twice", name)
		}
		a.Params[name] = text
	}
	opening.PlainNumbers(a.Params)
	if estimator == "" && preset == "" {
		return advantage.Estimator{},
			errors.New("name an estimator by --estimator or a system by --preset: --list shows them")
	}
	a, err := advantage.ExpandPreset(a)
	if err != nil {
		return advantage.Estimator{}, err
	}
	return advantage.New(a.Estimator, a.Params)
}

func listEstimators(w io.Writer, g *app.Global) error {
	type presetInfo struct {
		Name      string         `json:"name"`
		Estimator string         `json:"estimator"`
		Params    map[string]any `json:"params,omitempty"`
	}
	var presets []presetInfo
	for _, name := range advantage.Presets() {
		estimator, params, err := advantage.Preset(name)
		if err != nil {
			return err
		}
		presets = append(presets, presetInfo{name, estimator, params})
	}
	if g.JSON {
		return app.PrintJSON(w, map[string]any{"estimators": advantage.Estimators(), "presets": presets})
	}
	for _, e := range advantage.Estimators() {
		fmt.Fprintf(w, "%s\n    A = %s\n", strings.Join(append([]string{e.Name}, e.Aliases...), ", "), e.Formula)
		for _, p := range e.Parameters {
			fmt.Fprintf(w, "    %s=%v  %s\n", p.Name, p.Default, p.About)
		}
	}
	fmt.Fprintln(w)
	table := app.NewColumns(w)
	fmt.Fprintln(table, "PRESET\tESTIMATOR\tPARAMETERS")
	for _, p := range presets {
		fmt.Fprintf(table, "%s\t%s\t%s\n", p.Name, p.Estimator, app.Parameters(p.Params))
	}
	return table.Flush()
}
