package server

// ComputeEvery is the time between two computations of statuses.
var ComputeEvery = &computeEvery
