package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/inference/fleet"
)

// endpointKey is the environment variable with the one key of all inference servers.
const endpointKey = "RONDO_ENDPOINT_API_KEY"

// newFleet makes what this process knows of inference servers.
func (s *settings) newFleet(l *slog.Logger, metrics prometheus.Registerer) (*fleet.Fleet, error) {
	opts := fleet.DefaultOptions()
	opts.Slots = max(1, s.generatorSlots, s.gateway.slots)
	opts.Builtin, opts.Logger, opts.Metrics, opts.Keys = s.builtin, l, metrics, s.keys
	return fleet.New(opts)
}

func (s *settings) addKeysFlag(f *pflag.FlagSet) {
	f.StringVar(&s.endpointKeys, "endpoint-keys", "", "YAML file of which inference servers, judges and servers of tools are shown which key (or one key for all of the first two in "+endpointKey+")")
}

// readKeys reads the keys of inference servers.
func readKeys(file string) (fleet.Keys, error) {
	key := os.Getenv(endpointKey)
	switch {
	case file != "" && key != "":
		return fleet.Keys{}, fmt.Errorf("give --endpoint-keys or %s, not both", endpointKey)
	case file == "":
		return fleet.Everywhere(key), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fleet.Keys{}, fmt.Errorf("read --endpoint-keys: %w", err)
	}
	keys, err := fleet.ReadKeys(text)
	if err != nil {
		return fleet.Keys{}, fmt.Errorf("read --endpoint-keys %s: %w", file, err)
	}
	return keys, nil
}
