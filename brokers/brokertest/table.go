package brokertest

import "slices"

// behaviours are the promises of the contract, in the order of the contract.
func behaviours() []behaviour {
	return slices.Concat(receiving(), settling(), holding(), closing(), breaking(), sources(), publishing(), capabilities(), partitions(), seeking())
}
