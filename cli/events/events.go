// Package events has the commands that show and submit events.
package events

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/schemas"
)

// New makes the command `rondo events`.
func New(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "events", Short: "Read and publish events"}
	cmd.AddCommand(newEventsTail(g), newEventsPublish(g), newEventsSchema(g), newEventsTopology(g))
	return cmd
}

// eventLine is an event as `events tail --json` prints it.
type eventLine struct {
	Seq       uint64          `json:"seq"`
	ID        string          `json:"id"`
	Type      events.Type     `json:"type"`
	Entity    string          `json:"entity"`
	Route     string          `json:"route,omitempty"`
	Source    string          `json:"source"`
	Time      time.Time       `json:"time"`
	Prev      uint64          `json:"prev"`
	AsOf      *uint64         `json:"as_of,omitempty"`
	DecidedAt *time.Time      `json:"decided_at,omitempty"`
	Trace     string          `json:"traceparent,omitempty"`
	Data      json.RawMessage `json:"data"`
}

func printEvent(w io.Writer, g *app.Global, e events.Event) error {
	payload, err := e.JSON()
	if !g.JSON {
		const most = 160
		data := string(payload)
		if err != nil {
			data = err.Error()
		}
		if len(data) > most {
			data = data[:most] + "…"
		}
		_, err := fmt.Fprintf(w, "%8d %s %-24s %-14s %s\n", e.Seq,
			e.Time.Format("15:04:05.000"), e.Type, e.Entity, data)
		return err
	}
	if err != nil {
		return err
	}
	line := eventLine{Seq: e.Seq, ID: e.ID, Type: e.Type, Entity: e.Entity, Route: e.Route, Source: e.Source,
		Time: e.Time, Prev: e.Prev, Trace: e.TraceParent, Data: payload}
	if !e.DecidedAt.IsZero() {
		line.AsOf, line.DecidedAt = &e.AsOf, &e.DecidedAt
	}
	return app.PrintJSON(w, line)
}

func newEventsTail(g *app.Global) *cobra.Command {
	var follow bool
	var from uint64
	var entity, typ string
	cmd := &cobra.Command{
		Use: "tail RUN", Short: "Print a run's events (_ is the catalogue)",
		Example: `  rondo events tail demo-1 --entity g000003-1
  rondo events tail demo-1 --follow --type batch.ready --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if t := events.Type(typ); typ != "" && !t.IsDefined() {
				return fmt.Errorf("--type %q: unknown event type: `rondo events schema` lists the types", t)
			}
			g.Follows = follow
			p, err := plane.ConnectRun(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			defer p.Close()
			found := entity == ""
			show := func(e events.Event) error {
				found = found || e.Entity == entity
				if (entity != "" && e.Entity != entity) || (typ != "" && string(e.Type) != typ) {
					return nil
				}
				return printEvent(cmd.OutOrStdout(), g, e)
			}
			if follow {
				return p.Log.Follow(cmd.Context(), args[0], from, "", show)
			}
			for e, err := range p.Log.All(cmd.Context(), args[0], from) {
				if err != nil {
					return err
				}
				if err := show(e); err != nil {
					return err
				}
			}
			if !found {
				return fmt.Errorf(
					"run %s has no event of entity %q from sequence %d on: without --entity all are printed", args[0],
					entity, from)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new events as they arrive")
	cmd.Flags().Uint64Var(&from, "from", 1, "first sequence")
	cmd.Flags().StringVar(&entity, "entity", "", "only this entity, for example g000003-1")
	cmd.Flags().StringVar(&typ, "type", "", "only this type, for example rollout.scored")
	return cmd
}

func newEventsPublish(g *app.Global) *cobra.Command {
	var run, id, data string
	cmd := &cobra.Command{
		Use: "publish TYPE ENTITY", Short: "Submit an event to the intake",
		Example: `  rondo events publish run.paused demo-1 --run demo-1 --data '{"reason":"maintenance"}'
  rondo events publish batch.consumed trainer --run demo-1 --data '{"step":3}' --id consumed-3`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if t := events.Type(args[0]); !t.IsDefined() {
				return fmt.Errorf("unknown event type %q: `rondo events schema` lists the types", t)
			}
			if data == "-" {
				body, err := io.ReadAll(io.LimitReader(os.Stdin, 64<<20))
				if err != nil {
					return err
				}
				data = string(body)
			}
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			answer, err := plane.Submit(cmd.Context(), p,
				eventlog.Submission{Run: run, Type: events.Type(args[0]), Entity: args[1],
					Data: json.RawMessage(data), ID: id})
			if err != nil {
				return err
			}
			return app.Tell(cmd, g, answer, "%s at sequence %d\n", answer.ID, answer.Sequence)
		},
	}
	cmd.Flags().StringVar(&run, "run", "", "run (_ for the catalogue)")
	cmd.Flags().StringVar(&data, "data", "{}", "payload as JSON; - reads it from standard input")
	cmd.Flags().StringVar(&id, "id", "", "id that makes the submission repeatable")
	cmd.MarkFlagRequired("run")
	return cmd
}

func newEventsSchema(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "schema [TYPE]", Short: "Print the JSON Schema of an event type, or list the types",
		Example: "  rondo events schema batch.ready", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				schema, err := schemas.File(events.Type(args[0]))
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(schema)
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), events.Types())
			}
			for _, t := range events.Types() {
				from := ""
				switch {
				case t.ExternalOnly():
					from = "  (may be submitted to the intake, of groups and rollouts whose names begin with " +
						events.ExternalPrefix + ")"
				case t.FromOutside():
					from = "  (may be submitted to the intake)"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s%s\n", t, from)
			}
			return nil
		},
	}
}

func newEventsTopology(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "topology", Short: "Print streams, consumers and services, and the diagram of them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(),
					map[string]any{"streams": topology.Streams, "services": topology.Services,
						"consumers": topology.Consumers})
			}
			_, err := io.WriteString(cmd.OutOrStdout(), topology.Diagram())
			return err
		},
	}
}
