package inference

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Load is what a server says of how much it has to do.
type Load struct {
	Running, Waiting int // requests
	// KVUsage is the part of the memory for keys and values that is in use, 0 to 1; 0 where
	// the server does not say.
	KVUsage float64
}

// metric is what a gauge of an engine counts.
type metric int

const (
	running metric = iota
	waiting
	kvUsage
)

// engineMetrics are the gauges of engines. vLLM has had another name for the same before;
// llama.cpp has dropped its own.
var engineMetrics = map[string]metric{
	"vllm:num_requests_running":     running,
	"vllm:num_requests_waiting":     waiting,
	"vllm:kv_cache_usage_perc":      kvUsage,
	"vllm:gpu_cache_usage_perc":     kvUsage,
	"sglang:num_running_reqs":       running,
	"sglang:num_queue_reqs":         waiting,
	"sglang:token_usage":            kvUsage,
	"llamacpp:requests_processing":  running,
	"llamacpp:requests_deferred":    waiting,
	"llamacpp:kv_cache_usage_ratio": kvUsage,
}

// Bounds of a page of metrics, and of what it counts.
const (
	maxMetrics  = 4 << 20  // bytes
	maxMetric   = 64 << 10 // bytes of a line
	maxRequests = 1e6
)

// errNoLoad is the error of a page of metrics that says nothing of requests.
var errNoLoad = errors.New("it has no metrics of vLLM, SGLang or llama.cpp")

// Load reads a server's metrics. Those of several engines behind one address count together.
// Its error is a *Failure.
func (c *Client) Load(ctx context.Context, endpoint string) (load Load, err error) {
	url := strings.TrimSuffix(strings.TrimSuffix(endpoint, "/"), "/v1") + "/metrics"
	err = c.page(ctx, url, func(body io.Reader) error {
		load, err = readLoad(body)
		return err
	})
	return load, err
}

// readLoad finds the gauges in a page of metrics.
func readLoad(page io.Reader) (l Load, err error) {
	lines := bufio.NewScanner(io.LimitReader(page, maxMetrics))
	lines.Buffer(nil, maxMetric)
	counted := 0
	for lines.Scan() {
		name, value, ok := sample(lines.Text())
		what, known := engineMetrics[name]
		if !ok || !known {
			continue
		}
		most := maxRequests
		if what == kvUsage {
			most = 1
		}
		if !(value >= 0 && value <= most) { // NaN is neither
			return Load{}, fmt.Errorf("%s is %g: must be 0 to %g", name, value, most)
		}
		switch what {
		case running:
			l.Running = min(l.Running+int(value), maxRequests)
			counted++
		case waiting:
			l.Waiting = min(l.Waiting+int(value), maxRequests)
			counted++
		case kvUsage:
			l.KVUsage = max(l.KVUsage, value)
		}
	}
	if err := lines.Err(); err != nil {
		return Load{}, err
	}
	if counted < 2 {
		return Load{}, errNoLoad
	}
	return l, nil
}

// sample reads a line of the text format of Prometheus: a name, labels, a value, and maybe a time.
func sample(line string) (name string, value float64, ok bool) {
	end := strings.IndexAny(line, "{ ")
	if end <= 0 || line[0] == '#' {
		return "", 0, false
	}
	name, rest := line[:end], line[end:]
	if rest[0] == '{' {
		last := strings.LastIndexByte(rest, '}')
		if last < 0 {
			return "", 0, false
		}
		rest = rest[last+1:]
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	if err != nil && !math.IsInf(value, 0) {
		return "", 0, false
	}
	return name, value, true
}
