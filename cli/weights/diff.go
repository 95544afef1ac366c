package weights

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/diff"
)

// What `rondo weights diff` draws a bar for.
const (
	byLayer  = "layer"
	byTensor = "tensor"
)

func newDiff(g *app.Global) *cobra.Command {
	var from, to int64
	var by string
	cmd := &cobra.Command{
		Use: "diff POLICY", Short: "Show which part of a version's elements changed, by layer or tensor",
		Args: cobra.ExactArgs(1),
		Long: `Diff compares the current version, or --to, with the one before it, or --from, element by element. It reads both by ranges, so that neither is ever in
memory. It draws the part that changed of each layer, or with --by tensor of each tensor, and how many tensors changed by how much. --json has every tensor.`,
		Example: "  rondo weights diff my-model\n  rondo weights diff my-model --by tensor\n  rondo weights diff my-model --from 1 --to 12 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if by != byLayer && by != byTensor {
				return fmt.Errorf("--by %.40q: want %s or %s", by, byLayer, byTensor)
			}
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			a, b, err := pair(cmd.Context(), p, args[0], from, to)
			if err != nil {
				return err
			}
			show := app.NewProgress(g)
			r, err := diff.Versions(cmd.Context(), p.Store, a, b,
				func(done, total int64) { show.Show("%s", bar(done, total)) })
			show.Clear()
			if err != nil {
				return err
			}
			return app.Show(cmd, g, r, func(w io.Writer) error { return printDiff(w, r, by) })
		},
	}
	cmd.Flags().Int64Var(&from, "from", 0, "the older version (default: the one before the newer)")
	cmd.Flags().Int64Var(&to, "to", 0, "the newer version (default: the current one)")
	cmd.Flags().StringVar(&by, "by", byLayer, "draw the part that changed of each layer, or of each tensor")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{byLayer, byTensor},
		cobra.ShellCompDirectiveNoFileComp))
	cmd.ValidArgsFunction = completePolicies(g)
	return cmd
}

// pair reads the manifests of the versions to compare.
func pair(ctx context.Context, p *plane.Plane, policy string, from, to int64) (a, b *weights.Manifest, err error) {
	if to == 0 {
		if to, err = current(ctx, p, policy); err != nil {
			return nil, nil, err
		}
	}
	if from == 0 {
		stored, err := weights.Versions(ctx, p.Store, policy)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range stored {
			if s.Version < to {
				from = s.Version
			}
		}
		if from == 0 {
			return nil, nil, fmt.Errorf("version %d of policy %s is the first", to, policy)
		}
	}
	if a, err = weights.FetchManifest(ctx, p.Store, policy, from); err != nil {
		return nil, nil, unknownVersion(policy, from, err)
	}
	if b, err = weights.FetchManifest(ctx, p.Store, policy, to); err != nil {
		return nil, nil, unknownVersion(policy, to, err)
	}
	return a, b, nil
}

func printDiff(w io.Writer, r *diff.Report, by string) error {
	fmt.Fprintf(w, "version %d to %d: %d of %d elements changed (%.4g %%), of %d bytes", r.From, r.To, r.Sum.Changed,
		r.Sum.Elements, 100*r.Sum.Fraction(), r.Sum.Bytes)
	if r.Delta > 0 {
		fmt.Fprintf(w, "; the delta has %d bytes (%.4g %%)", r.Delta, 100*float64(r.Delta)/float64(max(1, r.Sum.Bytes)))
	}
	fmt.Fprintln(w)
	drawn, named := r.Layers, layerName
	if by == byTensor {
		drawn, named = r.Tensors, func(name string) string { return name }
	}
	most := 0.0
	for _, of := range drawn {
		most = max(most, of.Fraction())
	}
	t := app.NewColumns(w)
	for _, of := range drawn {
		if of.What == "" {
			fmt.Fprintf(t, "  %s\t%.4g %%\t%d bytes\t%s\n", named(of.Name), 100*of.Fraction(), of.Bytes,
				hashes(of.Fraction(), most))
		}
	}
	for _, of := range r.Tensors {
		if of.What != "" {
			fmt.Fprintf(t, "  %s\t%s\n", of.Name, of.What)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return printHistogram(w, r.Histogram)
}

// printHistogram says how many tensors changed by how much.
func printHistogram(w io.Writer, buckets []diff.Bucket) error {
	most := 0
	for _, b := range buckets {
		most = max(most, b.Tensors)
	}
	fmt.Fprintln(w, "tensors by the part that changed:")
	t := app.NewColumns(w)
	for _, b := range buckets {
		part := "nothing"
		if b.UpTo > 0 {
			part = fmt.Sprintf("up to %g %%", 100*b.UpTo)
		}
		fmt.Fprintf(t, "  %s\t%d tensors\t%d elements\t%s\n", part, b.Tensors, b.Elements,
			hashes(float64(b.Tensors), float64(most)))
	}
	return t.Flush()
}

// printPacked says what part of each layer's bytes its delta takes.
func printPacked(w io.Writer, layers []diff.Packed) {
	most := 0.0
	for _, layer := range layers {
		most = max(most, layer.Fraction())
	}
	for _, layer := range layers {
		fmt.Fprintf(w, "    %s\t%d of %d bytes\t%.4g %%  %s\n", layerName(layer.Name), layer.Delta, layer.Bytes,
			100*layer.Fraction(), hashes(layer.Fraction(), most))
	}
}

func layerName(name string) string {
	if name == "" {
		return "others"
	}
	return "layer " + name
}

// hashes is a bar for a value beside the largest one. A value above 0 has a mark.
func hashes(value, most float64) string {
	const width = 40
	if value <= 0 || most <= 0 {
		return ""
	}
	return strings.Repeat("#", max(1, int(width*value/most)))
}
