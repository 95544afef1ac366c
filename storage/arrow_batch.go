package storage

import (
	"encoding/json"
	"fmt"
	"strconv"
)

const batchKind = "batch"

// sampleRow is a Sample with its reward components as the JSON text of the file.
type sampleRow struct {
	components string
	Sample
}

var sampleColumns = []column[sampleRow]{
	stringColumn("run_id", func(r *sampleRow) *string { return &r.Run }),
	stringColumn("group_id", func(r *sampleRow) *string { return &r.Group }),
	stringColumn("rollout_id", func(r *sampleRow) *string { return &r.Rollout }),
	stringColumn("task", func(r *sampleRow) *string { return &r.Task }),
	stringColumn("stop_reason", func(r *sampleRow) *string { return &r.StopReason }),
	int32Column("sample_index", func(r *sampleRow) *int32 { return &r.SampleIndex }),
	int32Column("samples_in_rollout", func(r *sampleRow) *int32 { return &r.SamplesInRollout }),
	int32Column("prompt_length", func(r *sampleRow) *int32 { return &r.PromptLength }),
	boolColumn("truncated", func(r *sampleRow) *bool { return &r.Truncated }),
	boolColumn("text_only", func(r *sampleRow) *bool { return &r.TextOnly }),
	int32ListColumn("tokens", func(r *sampleRow) *[]int32 { return &r.Tokens }),
	boolListColumn("loss_mask", func(r *sampleRow) *[]bool { return &r.LossMask }),
	float32ListColumn("sampler_logprobs", func(r *sampleRow) *[]float32 { return &r.SamplerLogprobs }),
	float32ListColumn("advantages", func(r *sampleRow) *[]float32 { return &r.Advantages }),
	versionsColumn("policy_versions", func(r *sampleRow) *[]VersionSegment { return &r.PolicyVersions }),
	float32Column("reward", func(r *sampleRow) *float32 { return &r.Reward }),
	stringColumn("reward_components", func(r *sampleRow) *string { return &r.components }),
	int64Column("dispatch_version", func(r *sampleRow) *int64 { return &r.DispatchVersion }),
	int32Column("staleness", func(r *sampleRow) *int32 { return &r.Staleness }),
}

// EncodeBatch makes a batch file: Arrow IPC file format, zstd, one record batch; schemas/arrow.md describes it.
// The same batch gives the same bytes. It refuses a batch whose parts disagree, and ErrTooLarge ones.
func EncodeBatch(b *Batch) ([]byte, error) {
	file, err := encodeBatch(b)
	if err != nil {
		return nil, fmt.Errorf("encode batch %s/%d: %w", b.Feed, b.Step, err)
	}
	return file, nil
}

func encodeBatch(b *Batch) ([]byte, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	meta, err := b.metadata()
	if err != nil {
		return nil, err
	}
	rows := make([]sampleRow, len(b.Samples))
	for i := range rows {
		components, err := encodeComponents(b.Samples[i].RewardComponents)
		if err != nil {
			return nil, fmt.Errorf("sample %d: %w", i, err)
		}
		rows[i] = sampleRow{components: components, Sample: b.Samples[i]}
	}
	return writeArrow(sampleColumns, meta, rows)
}

func (b *Batch) metadata() (*metadata, error) {
	tokens, sampled := 0, 0
	versions := newVersionRange()
	for i := range b.Samples {
		s := &b.Samples[i]
		tokens += len(s.Tokens)
		sampled += countTrue(s.LossMask)
		for _, segment := range s.PolicyVersions {
			versions.add(segment.Version)
		}
	}
	if tokens > MaxArrowTokens {
		return nil, fmt.Errorf("%w: %d tokens (limit %d): make smaller batches", ErrTooLarge, tokens, MaxArrowTokens)
	}
	low, high := versions.bounds()
	meta := &metadata{}
	meta.add("kind", batchKind)
	meta.add("schema_version", SchemaVersion)
	meta.addText("run_id", b.Run)
	meta.addText("feed", b.Feed)
	meta.addInt("step", b.Step)
	meta.addInt("samples", int64(len(b.Samples)))
	meta.addInt("tokens", int64(tokens))
	meta.addInt("sampled_tokens", int64(sampled))
	meta.addInt("min_policy_version", low)
	meta.addInt("max_policy_version", high)
	return meta, nil
}

// DecodeBatch reads a batch file that may come from anywhere. Whatever the bytes, it does not panic and takes bounded memory;
// the error is an ErrCorrupt or an ErrTooLarge.
func DecodeBatch(file []byte) (*Batch, error) {
	b, err := decodeBatch(file)
	if err != nil {
		return nil, fmt.Errorf("decode batch file: %w", err)
	}
	return b, nil
}

func decodeBatch(file []byte) (*Batch, error) {
	meta, rows, err := readArrow(sampleColumns, batchKind, file)
	if err != nil {
		return nil, err
	}
	if err := meta.require("run_id", "feed"); err != nil {
		return nil, err
	}
	b := &Batch{Run: meta["run_id"], Feed: meta["feed"]}
	if b.Step, err = strconv.ParseInt(meta["step"], 10, 64); err != nil {
		return nil, fmt.Errorf("%w: metadata: %w", ErrCorrupt, err)
	}
	if len(rows) > 0 {
		b.Samples = make([]Sample, len(rows))
	}
	for i, row := range rows {
		b.Samples[i] = row.Sample
		if b.Samples[i].RewardComponents, err = decodeComponents(row.components); err != nil {
			return nil, fmt.Errorf("%w: sample %d: %w", ErrCorrupt, i, err)
		}
	}
	if err := b.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err := meta.matches(b.metadata()); err != nil {
		return nil, err
	}
	return b, nil
}

// encodeComponents writes the names in their order; no components are the empty text.
func encodeComponents(components map[string]float64) (string, error) {
	if len(components) == 0 {
		return "", nil
	}
	text, err := json.Marshal(components)
	return string(text), err
}

func decodeComponents(text string) (map[string]float64, error) {
	if text == "" {
		return nil, nil
	}
	var components map[string]float64
	if err := json.Unmarshal([]byte(text), &components); err != nil {
		return nil, fmt.Errorf("reward components: %w", err)
	}
	return components, nil
}
