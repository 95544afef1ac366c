package storage

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

const trajectoryKind = "trajectory"

// messageRow is a Message with the names that let rows of many files stand in one table.
type messageRow struct {
	run, group, rollout, task string
	columns                   string // in JSON
	Message
}

var messageColumns = []column[messageRow]{
	stringColumn("run_id", func(r *messageRow) *string { return &r.run }),
	stringColumn("group_id", func(r *messageRow) *string { return &r.group }),
	stringColumn("rollout_id", func(r *messageRow) *string { return &r.rollout }),
	stringColumn("task", func(r *messageRow) *string { return &r.task }),
	int32Column("index", func(r *messageRow) *int32 { return &r.Index }),
	int32Column("turn", func(r *messageRow) *int32 { return &r.Turn }),
	int32Column("segment", func(r *messageRow) *int32 { return &r.Segment }),
	stringColumn("role", func(r *messageRow) *string { return &r.Role }),
	stringColumn("content", func(r *messageRow) *string { return &r.Content }),
	stringColumn("name", func(r *messageRow) *string { return &r.Name }),
	stringColumn("tool_call_id", func(r *messageRow) *string { return &r.ToolCallID }),
	stringColumn("tool_calls", func(r *messageRow) *string { return &r.ToolCalls }),
	int32ListColumn("token_ids", func(r *messageRow) *[]int32 { return &r.TokenIDs }),
	float32ListColumn("logprobs", func(r *messageRow) *[]float32 { return &r.Logprobs }),
	boolListColumn("loss_mask", func(r *messageRow) *[]bool { return &r.LossMask }),
	int64Column("policy_version", func(r *messageRow) *int64 { return &r.PolicyVersion }),
	stringColumn("finish_reason", func(r *messageRow) *string { return &r.FinishReason }),
	stringColumn("workspace", func(r *messageRow) *string { return &r.Workspace }),
	timeColumn("started_at", func(r *messageRow) *time.Time { return &r.StartedAt }),
	durationColumn("duration", func(r *messageRow) *time.Duration { return &r.Duration }),
}

// reasonedColumns are those of a trajectory in which a message has reasoning, and versionedColumns of one with tokens of several versions in a
// message, columnedColumns of one with token columns, and constrainedColumns of one with constrained messages. Others are written as they were before there was any.
var (
	reasonedColumns    = append(slices.Clip(messageColumns), stringColumn("reasoning", func(r *messageRow) *string { return &r.Reasoning }))
	versionedColumns   = append(slices.Clip(reasonedColumns), messageVersionsColumn("version_spans", func(r *messageRow) *[]VersionSegment { return &r.Versions }))
	columnedColumns    = append(slices.Clip(versionedColumns), stringColumn("token_columns", func(r *messageRow) *string { return &r.columns }))
	constrainedColumns = append(slices.Clip(columnedColumns), boolColumn("constrained", func(r *messageRow) *bool { return &r.Constrained }))
)

// form is the version and the columns of the trajectory's file.
func (t *Trajectory) form() (schema string, columns []column[messageRow]) {
	switch {
	case slices.ContainsFunc(t.Messages, func(m Message) bool { return m.Constrained }):
		return ConstrainedSchema, constrainedColumns
	case t.HasColumns():
		return ColumnedSchema, columnedColumns
	case t.hasVersions():
		return VersionedSchema, versionedColumns
	case slices.ContainsFunc(t.Messages, func(m Message) bool { return m.Reasoning != "" }):
		return ReasonedSchema, reasonedColumns
	}
	return TrajectorySchema, messageColumns
}

// formOf reads a file's form from its metadata. A file that is broken has the oldest form: reading it then gives the error.
func formOf(file []byte) (schema string, columns []column[messageRow]) {
	switch schema = schemaVersion(file); schema {
	case ConstrainedSchema:
		return schema, constrainedColumns
	case ColumnedSchema:
		return schema, columnedColumns
	case VersionedSchema:
		return schema, versionedColumns
	case ReasonedSchema:
		return schema, reasonedColumns
	}
	return TrajectorySchema, messageColumns
}

// schemaVersion is the one in a file's metadata, or "": it is read without the library, which would read all columns' types for it.
func schemaVersion(file []byte) (version string) {
	defer func() {
		if recover() != nil { // offsets that lead nowhere
			version = ""
		}
	}()
	if len(file) > MaxArrowFile || checkArrow(file, 1) != nil {
		return ""
	}
	schema, _ := subTable(footerOf(file), footerSchema)
	for i := range vectorLen(schema, schemaMetadata) {
		entry := element(schema, schemaMetadata, i)
		if textOf(entry, entryKey) == "schema_version" {
			return textOf(entry, entryValue)
		}
	}
	return ""
}

// EncodeTrajectory makes a trajectory file: Arrow IPC file format, zstd, one record batch; schemas/arrow.md describes it.
// The same trajectory gives the same bytes. It refuses a trajectory whose parts disagree, and ErrTooLarge ones.
func EncodeTrajectory(t *Trajectory) ([]byte, error) {
	file, err := encodeTrajectory(t)
	if err != nil {
		return nil, fmt.Errorf("encode trajectory of rollout %s: %w", t.Rollout, err)
	}
	return file, nil
}

func encodeTrajectory(t *Trajectory) ([]byte, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	meta, err := t.metadata()
	if err != nil {
		return nil, err
	}
	rows, size := make([]messageRow, len(t.Messages)), 0
	for i := range rows {
		rows[i] = messageRow{run: t.Run, group: t.Group, rollout: t.Rollout, task: t.Task, Message: t.Messages[i]}
		if rows[i].columns, err = columnsText(t.Messages[i].Columns); err != nil {
			return nil, err
		}
		if size += len(rows[i].columns); size > maxArrowJSON {
			return nil, fmt.Errorf("%w: more than %d bytes of token columns", ErrTooLarge, maxArrowJSON)
		}
	}
	_, columns := t.form()
	return writeArrow(columns, meta, rows)
}

func (t *Trajectory) metadata() (*metadata, error) {
	tokens, sampled := 0, 0
	versions := newVersionRange()
	for i := range t.Messages {
		m := &t.Messages[i]
		tokens += len(m.TokenIDs)
		sampled += countTrue(m.LossMask)
		versions.addMessage(m)
	}
	if tokens > MaxArrowTokens {
		return nil, fmt.Errorf("%w: %d tokens (limit %d)", ErrTooLarge, tokens, MaxArrowTokens)
	}
	low, high := versions.bounds()
	meta := &metadata{}
	meta.add("kind", trajectoryKind)
	schema, _ := t.form()
	meta.add("schema_version", schema)
	meta.addText("run_id", t.Run)
	meta.addText("group_id", t.Group)
	meta.addText("rollout_id", t.Rollout)
	meta.addText("task", t.Task)
	meta.addText("stop_reason", t.StopReason)
	meta.addInt("dispatch_version", t.DispatchVersion)
	meta.add("text_only", strconv.FormatBool(t.TextOnly))
	meta.addInt("messages", int64(len(t.Messages)))
	meta.addInt("tokens", int64(tokens))
	meta.addInt("sampled_tokens", int64(sampled))
	meta.addInt("min_policy_version", low)
	meta.addInt("max_policy_version", high)
	return meta, nil
}

// DecodeTrajectory reads a trajectory file that may come from anywhere. Whatever the bytes, it does not panic and takes bounded memory;
// the error is an ErrCorrupt or an ErrTooLarge.
func DecodeTrajectory(file []byte) (*Trajectory, error) {
	t, err := decodeTrajectory(file)
	if err != nil {
		return nil, fmt.Errorf("decode trajectory file: %w", err)
	}
	return t, nil
}

func decodeTrajectory(file []byte) (*Trajectory, error) {
	schema, columns := formOf(file)
	meta, rows, err := readArrow(columns, trajectoryKind, schema, file, func(n int) []messageRow { return make([]messageRow, n) })
	if err != nil {
		return nil, err
	}
	if err := meta.require("run_id", "group_id", "rollout_id", "task", "stop_reason"); err != nil {
		return nil, err
	}
	t := &Trajectory{Run: meta["run_id"], Group: meta["group_id"], Rollout: meta["rollout_id"], Task: meta["task"], StopReason: meta["stop_reason"]}
	var versionErr, textErr error
	t.DispatchVersion, versionErr = strconv.ParseInt(meta["dispatch_version"], 10, 64)
	t.TextOnly, textErr = strconv.ParseBool(meta["text_only"])
	if err := errors.Join(versionErr, textErr); err != nil {
		return nil, fmt.Errorf("%w: metadata: %w", ErrCorrupt, err)
	}
	if len(rows) > 0 {
		t.Messages = make([]Message, len(rows))
	}
	size := 0
	for i, row := range rows {
		if size += len(row.columns); size > maxArrowJSON {
			return nil, fmt.Errorf("%w: more than %d bytes of token columns", ErrCorrupt, maxArrowJSON)
		}
		if row.run != t.Run || row.group != t.Group || row.rollout != t.Rollout || row.task != t.Task {
			return nil, fmt.Errorf("%w: row %d is of rollout %.80q, the metadata says %.80q", ErrCorrupt, i, row.rollout, t.Rollout)
		}
		t.Messages[i] = row.Message
		if t.Messages[i].Columns, err = parseColumns(row.columns); err != nil {
			return nil, fmt.Errorf("%w: row %d: %w", ErrCorrupt, i, err)
		}
	}
	if err := t.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err := meta.matches(t.metadata()); err != nil {
		return nil, err
	}
	return t, nil
}
