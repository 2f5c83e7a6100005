package console

import (
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// Source is what the console asks a [supervisor.Supervisor]. Its methods do no
// I/O and are safe for concurrent use.
type Source interface {
	Each(f func(supervisor.Snapshot))
	BytesInFlight() int64
	HardLimitsFired() int64
	Info() *supervisorv1.GetServerInfoResponse
	ShuttingDown() bool
}

var _ Source = (*supervisor.Supervisor)(nil)
