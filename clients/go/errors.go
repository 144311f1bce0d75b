package antiphon

import (
	"context"
	"errors"
	"fmt"
)

// A Code says what is wrong. It is an error itself, to be asked for: errors.Is(err, antiphon.ErrConflict).
type Code string

// The codes of the agent, and ErrConnection.
const (
	ErrConflict    Code = "conflict"    // IfVersion does not hold; Version is what is there
	ErrTimeout     Code = "timeout"     // it did not happen in its time
	ErrCancelled   Code = "cancelled"   // the context was cancelled
	ErrNotHeld     Code = "not_held"    // nothing is held with this token, or the group was left
	ErrLost        Code = "lost"        // the lock, its place in the queue, or the member called is gone
	ErrUnavailable Code = "unavailable" // not now: try again
	ErrRefused     Code = "refused"     // not so: beyond a bound, or without sense
	ErrUnknown     Code = "unknown"     // the majority was lost meanwhile: read before you write again
	ErrFailed      Code = "failed"      // handlers of the members that were called failed
	ErrConnection  Code = "connection"  // the connection is over, or this client came back as a new one
)

func (c Code) Error() string { return string(c) }

// Ran says whether something happened although there is an error.
type Ran string

// RanYes is said of calls alone.
const (
	RanNo    Ran = "no" // trying again is safe
	RanMaybe Ran = "maybe"
	RanYes   Ran = "yes"
)

// An Error says why something was not done. All errors of this package but io.EOF are of this type.
// errors.Is finds its Code, and what is behind it: context.Canceled, or an error of the network.
type Error struct {
	Code     Code              `json:"code"`
	Reason   string            `json:"reason"` // for people; of ErrConnection: why the connection is over
	Ran      Ran               `json:"ran"`
	Payload  Payload           `json:"payload"` // of a handler that failed: what it said
	Version  uint64            `json:"-"`       // of a conflict: what the key has
	Failures map[string]*Error `json:"-"`       // of a call: why each node gave no answer

	cause error
}

func (e *Error) Error() string { return fmt.Sprintf("antiphon: %s: %s", e.Code, e.Reason) }

// Is says whether the target is this error's Code.
func (e *Error) Is(target error) bool { return target == error(e.Code) }

func (e *Error) Unwrap() error { return e.cause }

// over is the error of what a context has ended.
func over(ctx context.Context, ran Ran) *Error {
	e := &Error{Code: ErrCancelled, Reason: context.Cause(ctx).Error(), Ran: ran, cause: ctx.Err()}
	if errors.Is(e.cause, context.DeadlineExceeded) {
		e.Code = ErrTimeout
	}
	return e
}

// refused is the error of what is not even sent.
func refused(format string, of ...any) *Error {
	return &Error{Code: ErrRefused, Reason: fmt.Sprintf(format, of...), Ran: RanNo}
}
