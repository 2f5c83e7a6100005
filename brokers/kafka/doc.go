// Package kafka drives consumers on Kafka.
package kafka
