package inference

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// What a server says of its slots is a mistake beyond maxSlots; its cache is taken to hold
// maxCache tokens at most.
const (
	maxSlots = 1 << 16
	maxCache = 1 << 60
)

// Slots asks a server how many requests it samples at once; 0 where it does not say:
//
//	vLLM       max_num_seqs of /server_info, which a server in development mode serves; else how many of the longest requests its cache holds, by /metrics and its list of models
//	SGLang     effective_max_running_requests_per_dp of /server_info, of all its schedulers
//	llama.cpp  total_slots of /props
//	TGI        max_concurrent_requests of /info
//
// Its error is that of a server that is away, or loads its model: it may say so later.
func (c *Client) Slots(ctx context.Context, endpoint string) (int, error) {
	root := strings.TrimSuffix(strings.TrimSuffix(endpoint, "/"), "/v1")
	for _, look := range []func(context.Context, string) (int, error){c.infoSlots, c.propsSlots,
		c.cacheSlots, c.tgiSlots} {
		n, err := look(ctx, root)
		var f *Failure
		switch {
		case errors.As(err, &f) && (f.Away || f.Status == http.StatusServiceUnavailable):
			return 0, err
		case err == nil && n > 0 && n <= maxSlots:
			return n, nil
		}
	}
	return 0, ctx.Err()
}

func (c *Client) infoSlots(ctx context.Context, root string) (int, error) {
	var info struct {
		VLLM struct {
			Scheduler struct {
				Sequences int `json:"max_num_seqs"`
			} `json:"scheduler_config"`
		} `json:"vllm_config"`
		SGLang []struct {
			Requests int `json:"effective_max_running_requests_per_dp"`
		} `json:"internal_states"`
	}
	err := c.get(ctx, root+"/server_info?config_format=json", &info)
	n := info.VLLM.Scheduler.Sequences
	for _, scheduler := range info.SGLang {
		n += min(max(0, scheduler.Requests), maxSlots)
	}
	return n, err
}

func (c *Client) propsSlots(ctx context.Context, root string) (int, error) {
	var props struct {
		Slots int `json:"total_slots"`
	}
	err := c.get(ctx, root+"/props", &props)
	return props.Slots, err
}

func (c *Client) tgiSlots(ctx context.Context, root string) (int, error) {
	var info struct {
		Requests int `json:"max_concurrent_requests"`
	}
	err := c.get(ctx, root+"/info", &info)
	return info.Requests, err
}

// cacheSlots is how many requests of the greatest length vLLM's cache holds, as it says in its own
// log when it starts: fewer than it samples at once of shorter ones.
func (c *Client) cacheSlots(ctx context.Context, root string) (int, error) {
	tokens := 0
	err := c.page(ctx, root+"/metrics", func(page io.Reader) error {
		lines := bufio.NewScanner(io.LimitReader(page, maxMetrics))
		lines.Buffer(nil, maxMetric)
		for lines.Scan() {
			tokens = min(tokens+cacheTokens(lines.Text()), maxCache)
		}
		return lines.Err()
	})
	if err != nil || tokens == 0 {
		return 0, err
	}
	models, err := c.Models(ctx, root+"/v1")
	longest := 0
	for _, m := range models {
		longest = max(longest, m.Context)
	}
	if longest == 0 {
		return 0, err
	}
	return max(1, tokens/longest), nil
}

// cacheLabel finds the labels of vLLM's cache that say how many tokens it holds.
var cacheLabel = regexp.MustCompile(`[{,](block_size|num_gpu_blocks)="(\d{1,9})"`)

// cacheTokens is how many tokens an engine's cache holds, by a line of
// metrics; 0 of any other line.
func cacheTokens(line string) int {
	labels, found := strings.CutPrefix(line, "vllm:cache_config_info")
	if !found {
		return 0
	}
	size := map[string]int{}
	for _, label := range cacheLabel.FindAllStringSubmatch(labels, -1) {
		size[label[1]], _ = strconv.Atoi(label[2])
	}
	return size["block_size"] * size["num_gpu_blocks"]
}
