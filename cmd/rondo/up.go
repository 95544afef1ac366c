package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
)

func newUp(g *global) *cobra.Command {
	s := defaultSettings()
	var durability, listen string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run all services with an embedded log and store, until interrupted",
		Example: `  rondo up
  rondo up --dir /srv/rondo --durability 100ms --listen 127.0.0.1:8701
  rondo up --gateway-listen 127.0.0.1:8790`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			every, err := parseDurability(durability)
			if err != nil {
				return err
			}
			p, err := hold(cmd.Context(), g.dir, holdOptions{storeURL: g.store, listen: true, durability: every})
			if errors.Is(err, errHeld) {
				return fmt.Errorf("%w: does another `rondo up` or `rondo demo` run there?", err)
			}
			if err != nil {
				return err
			}
			defer p.close()
			return up(cmd.Context(), p, s, listen)
		},
	}
	s.addFlags(cmd)
	s.gateway.addFlags(cmd, "")
	cmd.Flags().StringVar(&durability, "durability", "always", "when appends are synced to disk: always, or an interval such as 100ms")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address for /metrics and /healthz")
	return cmd
}

// parseDurability reads "always" as 0.
func parseDurability(text string) (time.Duration, error) {
	if text == "always" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("--durability %q: use always, or an interval such as 100ms", text)
	}
	return d, nil
}

// up runs everything until the context ends.
func up(ctx context.Context, p *plane, s settings, listen string) error {
	registry := prometheus.NewRegistry()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { health(w, p) })
	go serveHTTP(ctx, listener, mux)
	l := logger(slog.LevelInfo)
	if s.policyListen, s.builtin, err = freePolicyAddress(); err != nil {
		return err
	}
	l.Info("rondo is up", "dir", p.dir, "nats", p.url, "metrics", "http://"+listener.Addr().String()+"/metrics", "policy", s.builtin)
	return runParts(ctx, everyPart(s), p.log, p.dir, l, registry, s)
}

// freePolicyAddress finds a port for the built-in policy. Runs name it "builtin", so it may change.
func freePolicyAddress() (listen, baseURL string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer listener.Close()
	listen = listener.Addr().String()
	return listen, "http://" + listen + "/v1", nil
}
