package weights

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/storage/whole"
	"github.com/rondo-rl/rondo/weights/mxfp8"
)

func newQuantize(g *app.Global) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "quantize FOLDER", Short: "Make MXFP8 of a version's bfloat16 weights, and report the error",
		Args: cobra.ExactArgs(1),
		Long: `Quantize reads the checkpoint in a folder, such as a version that ` + "`rondo weights fetch`" + ` has laid there, and writes another one with MXFP8 weights: 32 elements of a row share a
power of two (F8_E8M0, in NAME_scale_inv), and each has eight bits (F8_E4M3, in NAME). That is 51.6 % of the bytes. Matrices of linear layers are
quantised; embeddings, the head, routers, norms and all that is not bfloat16 stay. The bfloat16 version stays the truth: nothing is published.

The rule is that of the OCP Microscaling Formats specification 1.0: the scale is the power of two of the block's largest element less 8, elements are rounded to nearest, ties to
even, and saturate. A block with an element that is not finite is NaN. mxfp8.json in the new folder has the error of each tensor.`,
		Example: "  rondo weights quantize /models/my-model/v000012 --to /models/my-model-mxfp8/v000012",
		RunE: func(cmd *cobra.Command, args []string) error {
			show := app.NewProgress(g)
			report, err := mxfp8.Folder(cmd.Context(), args[0], to,
				func(done, total int64) { show.Show("%s", bar(done, total)) })
			show.Clear()
			if err != nil {
				return err
			}
			text, err := json.MarshalIndent(report, "", " ")
			if err != nil {
				return err
			}
			if err := whole.File(filepath.Join(to, mxfp8.ReportName),
				func(w io.Writer) error { _, err := w.Write(append(text, '\n')); return err }); err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), report)
			}
			t := app.NewColumns(cmd.OutOrStdout())
			fmt.Fprintln(t, "TENSOR\tELEMENTS\tMEAN ERROR\tLARGEST\tSATURATED\tFLUSHED\tNOT FINITE")
			for _, q := range report {
				part := func(n int64) float64 { return 100 * float64(n) / float64(max(1, q.Elements)) }
				fmt.Fprintf(t, "%s\t%d\t%.3g %%\t%.3g %%\t%.3g %%\t%.3g %%\t%.3g %%\n", q.Name, q.Elements, 100*q.Mean,
					100*q.Max, part(q.Saturated), part(q.Flushed), part(q.NotFinite))
			}
			return t.Flush()
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "folder of the quantised weights")
	_ = cmd.MarkFlagRequired("to")
	return cmd
}
