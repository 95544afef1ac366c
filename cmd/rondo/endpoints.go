package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/inference/fleet"
)

// endpointKey is the environment variable with the one key of all inference servers.
const endpointKey = "RONDO_ENDPOINT_API_KEY"

// newFleet makes what this process knows of inference servers.
func (s *settings) newFleet(l *slog.Logger, metrics prometheus.Registerer) (*fleet.Fleet, error) {
	opts := fleet.DefaultOptions()
	opts.Slots = max(1, s.generatorSlots, s.gateway.slots)
	opts.Builtin, opts.Logger, opts.Metrics = s.builtin, l, metrics
	key := os.Getenv(endpointKey)
	switch {
	case s.endpointKeys != "" && key != "":
		return nil, fmt.Errorf("give --endpoint-keys or %s, not both", endpointKey)
	case s.endpointKeys == "":
		opts.Keys = fleet.Everywhere(key)
		return fleet.New(opts)
	}
	text, err := os.ReadFile(s.endpointKeys)
	if err != nil {
		return nil, fmt.Errorf("read --endpoint-keys: %w", err)
	}
	if opts.Keys, err = fleet.ReadKeys(text); err != nil {
		return nil, fmt.Errorf("read --endpoint-keys %s: %w", s.endpointKeys, err)
	}
	return fleet.New(opts)
}
